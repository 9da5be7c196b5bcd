"""Version 1 of the protocol: `translation_pb2` and `models_pb2`, and their `…_pb2_grpc`."""
