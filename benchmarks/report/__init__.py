"""Results as tables and a page, and the bounds that the results are held to."""
