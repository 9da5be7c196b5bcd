"""The HTTP port: Connect and plain JSON, each call of which goes on to the server's own gRPC service."""
