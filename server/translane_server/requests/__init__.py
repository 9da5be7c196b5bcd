"""Requests of the protocol to sentences, and results back to messages."""
