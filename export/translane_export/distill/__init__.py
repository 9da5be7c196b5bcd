"""Sequence-level knowledge distillation: a teacher's translations as the text that a smaller student learns from."""
