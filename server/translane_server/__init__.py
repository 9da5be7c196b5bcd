"""The Translane translation server."""
