"""One step for every kind of search: the sentences that decode, their rows, and functions on arrays."""
