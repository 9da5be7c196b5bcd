"""Looking inside a bundle: what one sentence does to its model, as a page."""
