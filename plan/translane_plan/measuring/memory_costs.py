"""The memory of a server, divided among what it consists of."""

from __future__ import annotations

import statistics

from translane_plan.measuring.processes import resident
from translane_plan.measuring.server import MeasuredServer
from translane_plan.profile import Memory
from translane_server.manifest import COMPUTED_IN, Manifest
from translane_server.requests.limits import TokenLimits

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


def memory_of(server: MeasuredServer, manifest: Manifest, tokens: TokenLimits, *, replicas: int, rows: int) -> Memory:
    """Measure the memory of a server that has translated.

    Args:
        server: the server.
        manifest: of its model.
        tokens: its limits.
        replicas: its replicas.
        rows: the rows of all of them.
    """
    decoding = server.replica_pids
    private = sorted(resident([pid]).private for pid in decoding)[-replicas:]  # another process only forks them
    row = row_bytes(manifest, tokens)
    return Memory(
        front_end=resident([server.pid]).proportional,
        weights=max(0, resident(decoding).proportional - sum(private)),
        replica=max(0.0, statistics.fmean(private) - rows / replicas * row),
        row=row,
    )


def row_bytes(manifest: Manifest, tokens: TokenLimits) -> float:
    """The keys and values of a row [bytes]: of its own tokens and of its source, in every layer."""
    architecture = manifest.architecture
    numbers = 2 * architecture.decoder_layers * architecture.key_value_heads * architecture.head_size
    own, cross = COMPUTED_IN[manifest.precision], manifest.graphs.cross_dtype
    return float(numbers * (tokens.target * _BYTES[own] + tokens.source * _BYTES[cross]))
