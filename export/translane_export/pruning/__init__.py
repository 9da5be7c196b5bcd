"""Leaves out of a checkpoint the languages that an export does not need, and the pieces that only they use."""
