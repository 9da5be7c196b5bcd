"""The running batch: which row decodes what, and what a decoder step makes of it."""
