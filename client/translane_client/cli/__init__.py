"""The `translane` command: its arguments, its commands, and the files that it reads and writes."""
