"""Errors, files, processors and time: what every room may use."""
