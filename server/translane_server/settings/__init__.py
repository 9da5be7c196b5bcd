"""What a server can be told, and from where."""
