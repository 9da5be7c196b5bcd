"""The running batch: the sentences that decode, their rows, and the decode step of each kind of search."""
