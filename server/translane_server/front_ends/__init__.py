"""Several processes that take requests on the same ports, and their parent."""
