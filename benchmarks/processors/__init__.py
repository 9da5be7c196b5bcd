"""Other processors than this machine's, as programs see them."""
