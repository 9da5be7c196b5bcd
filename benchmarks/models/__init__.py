"""The models that engines run, and the sentences that engines decode with them."""
