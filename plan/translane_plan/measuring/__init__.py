"""Measures the costs of a profile with the server's own engine, and with a real server on this machine."""
