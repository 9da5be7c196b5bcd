"""The `translane` command: its arguments, its commands, and the files that it reads and writes.

What ends a command is a CommandError. One about a file is a FileError, which names the file and maybe the line.
"""
