"""Looking inside a bundle: what one sentence does to its model, as pictures, tables and a page."""
