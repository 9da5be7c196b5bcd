"""The ONNX and TorchScript graphs of a model: how they are built from it, captured and written."""
