"""The server's end of its replicas: which sentence goes where, and the processes behind it."""
