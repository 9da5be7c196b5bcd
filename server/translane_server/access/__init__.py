"""Who may call: certificates of the ports, keys of callers, and how much a key may ask for."""
