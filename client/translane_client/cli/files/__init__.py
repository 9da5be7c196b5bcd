"""The kinds of files that `translane translate` reads: what is translated in a file, and what stays as it is."""
