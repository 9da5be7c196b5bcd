"""Calls that this process forwards to its own gRPC service, over a unix socket that nobody else reaches."""
