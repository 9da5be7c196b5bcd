"""The model on ONNX Runtime: sessions, the memory of rows, and the backends for a CPU and for CUDA."""
