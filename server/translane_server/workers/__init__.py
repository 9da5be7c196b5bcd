"""Processes that decode, and who gets which sentence."""
