"""Starts, drains and ends a server."""
