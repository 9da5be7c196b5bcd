"""The backend on NVIDIA GPUs: rows in device memory, and decoder steps that are captured as CUDA graphs."""
