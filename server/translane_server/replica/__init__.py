"""Replicas of the model: each decodes a running batch of its own in a process of its own.

What receives requests and what decodes them share no interpreter, so neither waits for the other's lock. `dispatcher`
hands sentences to replicas; `process` is its end of their processes, and `served` what runs there. Several may fork
from one process (`forked`).
"""
