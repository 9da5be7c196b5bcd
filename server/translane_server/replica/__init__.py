"""A replica of the model: a process with its own running batch, and a socket to the server's process.

The server and the replicas have an interpreter each, so they do not wait for each other's interpreter lock.
"""
