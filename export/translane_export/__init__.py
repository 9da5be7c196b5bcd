"""Train a Transformer and export it as a Translane model bundle."""
