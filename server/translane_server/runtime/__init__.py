"""The model on ONNX Runtime: sessions, the memory of rows, and the backends of a CPU and of CUDA."""
