"""Quantization: ranges of inputs, graphs in int8, and back to float32."""
