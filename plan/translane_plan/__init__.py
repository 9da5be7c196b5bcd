"""Plans the machines of a load: measures what sentences cost on one core, and simulates servers that decode them."""
