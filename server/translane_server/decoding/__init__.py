"""How hypotheses are chosen: pure functions on arrays, and the rules of options."""
