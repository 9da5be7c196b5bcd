"""Readers of checkpoints, one for each format."""
