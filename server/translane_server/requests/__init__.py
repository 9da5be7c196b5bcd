"""Turns requests of the protocol into sentences, and results into messages of the protocol."""
