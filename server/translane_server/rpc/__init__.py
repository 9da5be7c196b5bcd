"""The protocol's edge: RPCs come in here, and every answer leaves here."""
