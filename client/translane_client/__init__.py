"""The client of the Translane translation service. Its public names are in `translane`.

It needs grpcio and protobuf, and imports neither numpy nor a deep-learning framework.
"""
