"""Translates texts with one model or several: from plain requests to plain translations, without any protocol."""
