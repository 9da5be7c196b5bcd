"""On a CPU, what the graphs give for a sentence is the same to the last bit, alone or batched, padded or not."""

from typing import Any

import numpy as np
import pytest

from helpers.bundles import random_bundle
from helpers.sessions import open_session

CONFIGS: dict[str, Any] = {
    "tiny": {},
    "rows that start at no vector boundary": {"d_model": 20, "heads": 2, "head_size": 8, "ffn_size": 37},
    "small": {"d_model": 256, "heads": 4, "ffn_size": 512, "norm": "pre", "activation": "gelu", "max_positions": 320},
}
THREADS = (1, 2)


@pytest.fixture(scope="module", params=list(CONFIGS.values()), ids=list(CONFIGS))
def bundle(request, tmp_path_factory):
    return random_bundle(tmp_path_factory.mktemp("bundle") / "bundle", **request.param)


@pytest.fixture(params=THREADS, ids=lambda threads: f"{threads} threads")
def session(bundle, request):
    return lambda name: open_session(bundle / name, threads=request.param)


@pytest.mark.slow
def test_the_encoder(session):
    encoder = session("encoder.onnx")
    draw = np.random.default_rng(0)
    for lengths, padding in (((1, 5), 0), ((3, 1, 12, 7, 2), 0), ((17, 33, 64, 1), 0), ((8,) * 16, 0), ((2, 31), 25)):
        source_ids = draw.integers(4, 40, (len(lengths), min(max(lengths) + padding, 64)))
        together = encoder.run(None, {"source_ids": source_ids, "source_lengths": np.array(lengths, np.int32)})
        for row, length in enumerate(lengths):
            alone = encoder.run(
                None,
                {"source_ids": source_ids[row : row + 1, :length], "source_lengths": np.array([length], np.int32)},
            )
            for expected, actual in zip(alone, together, strict=True):
                np.testing.assert_array_equal(actual[row, :, :length], expected[0])


@pytest.mark.slow
def test_the_decoder_step(session):
    decoder = session("decoder.onnx")
    draw = np.random.default_rng(0)
    rows, capacity = 64, 40
    inputs: dict[str, np.ndarray] = {}
    for tensor in decoder.get_inputs():
        if "_key_" in tensor.name or "_value_" in tensor.name:
            shape = (rows, tensor.shape[1], capacity, tensor.shape[3])
            inputs[tensor.name] = draw.standard_normal(shape, dtype=np.float32)
    inputs["token_ids"] = draw.integers(4, 40, rows)
    inputs["positions"] = draw.integers(0, capacity, rows).astype(np.int32)
    inputs["source_lengths"] = draw.integers(1, capacity, rows).astype(np.int32)

    def run(chosen):
        some = {name: value[chosen] for name, value in inputs.items()}
        return decoder.run(None, some | {"num_candidates": np.array([4]), "with_log_probs": np.array(True)})

    alone = [run(np.array([row])) for row in range(rows)]
    for count in (2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 64):
        chosen = draw.permutation(rows)[:count]
        together = run(chosen)
        for place, row in enumerate(chosen):
            for expected, actual in zip(alone[row], together, strict=True):
                np.testing.assert_array_equal(actual[place], expected[0])
