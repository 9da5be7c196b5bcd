"""The models of a server: which there are, which version of each is loaded, and which one a request gets."""
