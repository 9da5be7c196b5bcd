"""Errors, files, the machine, time and the quality of translations: what every room may use."""
