"""What an exported model is verified with: it decodes, and is compared with PyTorch's."""
