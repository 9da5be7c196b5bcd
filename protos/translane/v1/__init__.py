"""Version 1 of the protocol: `translation_pb2` and `translation_pb2_grpc`."""
