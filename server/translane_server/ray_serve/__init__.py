"""The service as an application of Ray Serve: engines as Serve replicas, calls through Serve's gRPC proxy."""
