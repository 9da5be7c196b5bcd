"""The Translane protocol: protobuf messages and gRPC stubs."""
