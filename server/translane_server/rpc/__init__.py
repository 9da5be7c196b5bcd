"""The protocol's edge: it receives every RPC and sends every answer."""
