"""A replica of the model: a process that decodes a running batch of its own, for the server that it has a socket to.

What receives requests and what decodes them share no interpreter, so neither waits for the other's lock.
"""
