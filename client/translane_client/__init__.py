"""Thin Python client of the Translane translation service."""
