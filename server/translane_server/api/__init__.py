"""Adapters between protocols and the service: a call, who may make it, how much, and what it gets."""
