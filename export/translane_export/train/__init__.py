"""Training: from parallel text to a checkpoint."""
