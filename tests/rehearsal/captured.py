"""Rehearses steps as the server runs them, captured as CUDA graphs; runs within `cuda-rehearsal run`.

    cuda-rehearsal run --cc 86 -- python tests/rehearsal/captured.py BUNDLE [ROWS]

Writes a line of JSON for each kind of step: what a step in the steady state asks of CUDA, the lengths that reached each
attention kernel while the step was captured, and the host's time [µs], which is the only time that a rehearsal knows.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, os.environ["CUDA_REHEARSAL_FOLDER"])

import numpy as np
from project_adapter import tell_pieces
from rehearsal.journal import Journal

from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.backend import RowMove, StepNeeds
from translane_server.runtime.cuda.backend import CudaBackend
from translane_server.runtime.cuda.step_memory import STEPS_AT_ONCE
from translane_server.runtime.sessions import Sessions

CAPACITY = 64
TIMED = 200


def main() -> None:
    bundle = load_bundle(Path(sys.argv[1]))
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    limits, start = bundle.manifest.limits, bundle.manifest.special_ids.decoder_start
    backend = CudaBackend(
        Sessions(bundle, device="cuda", threads=1),
        rows=rows,
        source_capacity=min(CAPACITY, limits.source_tokens),
        target_capacity=min(CAPACITY, limits.target_tokens),
        encode_tokens=rows * CAPACITY,
    )
    tell_pieces(backend)
    journal = Journal()
    source_lengths = [3 + 7 * row % 11 for row in range(rows)]
    backend.encode([[bundle.manifest.special_ids.eos] * length for length in source_lengths], 0)
    tokens = np.full(rows, start, np.int64)
    positions = np.array([1 + 5 * row % 11 for row in range(rows)], np.int32)

    def report(kind: str, run: Callable[[], object], **more: Any) -> None:
        """Run it once, which captures it, once more, and then many times."""
        with journal.tally(f"{kind}, captured") as captured:
            run()
        with journal.tally(f"{kind}, replayed") as replayed:
            run()
        times = []
        for _ in range(TIMED):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        found = {"kind": kind, "captured": asdict(captured), "replayed": asdict(replayed), **more}
        print(json.dumps(found | {"host_microseconds": round(1e6 * statistics.median(times), 1)}), flush=True)

    expected = {
        "source lengths": source_lengths,
        "target lengths": (positions + 1).tolist(),
        "positions": positions.tolist(),
    }
    needs = {
        "greedy": StepNeeds(log_probs=False),
        "scored": StepNeeds(),
        "8 candidates": StepNeeds(num_candidates=8),
        "logits": StepNeeds(num_candidates=8, logits=True),
    }
    for kind, need in needs.items():
        report(kind, partial(backend.decode_step, tokens, positions, need), expected=expected)
    report("logits, kept", partial(backend.decode_step, tokens, positions, needs["logits"], 0))
    report(
        f"{STEPS_AT_ONCE} greedy steps, kept",
        lambda: backend.decode_ahead(tokens, positions, STEPS_AT_ONCE, keep=0),
    )
    report("an alignment", lambda: backend.align(1, 0, [0, 1, 0]))
    report(
        f"{STEPS_AT_ONCE} greedy steps",
        lambda: backend.decode_ahead(tokens, positions, STEPS_AT_ONCE),
    )
    fewer = max(1, rows * 5 // 8)
    report(
        "greedy, between two buckets",
        lambda: backend.decode_ahead(tokens[:fewer], positions[:fewer], 1),
    )
    # every fourth row over the three behind it, as beams of four do when one of them is ahead of the others
    moves = [RowMove(row, row + other, 12, 0, 1) for row in range(0, rows - 3, 4) for other in (1, 2, 3)] or [
        RowMove(0, 1, 12, 0, 1)
    ]
    report(f"moves of {len(moves)} rows", lambda: backend.move_rows(moves))
    backend.close()


if __name__ == "__main__":
    main()
