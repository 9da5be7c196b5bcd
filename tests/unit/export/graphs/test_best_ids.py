"""The K best ids in ONNX Runtime are PyTorch's, and of equal logits the lowest id comes first."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.sessions import open_session
from translane_export.graphs.candidates import best_ids
from translane_export.graphs.onnx_export import export_graph
from translane_server.bundle.manifest import Graph, GraphTensor

pytestmark = pytest.mark.slow  # a graph is exported for each vocabulary

IN_BLOCKS = (768, 1000, 1536, 4000)
WHOLE = (40, 767, 1009, 4001)  # too small, or no suitable number divides it


class _BestIds(nn.Module):
    def forward(self, logits, count):
        return best_ids(logits, count)


@cache
def session(vocabulary):
    inputs = GraphTensor("logits", "float32", ("rows", vocabulary)), GraphTensor("count", "int64", (1,))
    outputs = (GraphTensor("ids", "int64", ("rows", "candidates")),)
    return open_session(export_graph(_BestIds(), Graph("best.onnx", inputs, outputs)))


def found(logits, count):
    return session(logits.shape[1]).run(None, {"logits": logits, "count": np.array([count])})[0]


def expected(logits, count):
    """By value, and of equal ones by id."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


@pytest.mark.parametrize("vocabulary", [*IN_BLOCKS, *WHOLE])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_the_best_of_any_logits(vocabulary, data):
    rows = data.draw(st.integers(1, 5), label="rows")
    count = data.draw(st.integers(1, min(vocabulary, 80)) | st.just(vocabulary), label="count")
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    values = data.draw(st.sampled_from([None, 1, 2, 5, 60]), label="different values")
    logits = draw.standard_normal((rows, vocabulary)).astype(np.float32)
    if values is not None:
        logits = draw.integers(0, values, logits.shape).astype(np.float32)
    suppressed = data.draw(st.sampled_from([0, 1, 30, vocabulary // 2, vocabulary - 1]), label="suppressed")
    for row in logits:
        row[draw.permutation(vocabulary)[:suppressed]] = -np.inf
    np.testing.assert_array_equal(found(logits, count), expected(logits, count))


@pytest.mark.parametrize("vocabulary", IN_BLOCKS)
@pytest.mark.parametrize("size", [50, 96, 128, 200])
def test_the_best_may_all_be_in_one_block_or_each_in_another(vocabulary, size):
    """Whatever sizes the blocks have."""
    logits = np.zeros((2, vocabulary), np.float32)
    logits[0, -size:] = np.arange(size)  # side by side
    logits[1, ::size] = np.arange(len(logits[1, ::size])) + 1  # far apart
    for count in (1, 5, len(logits[1, ::size]), size):
        np.testing.assert_array_equal(found(logits, count), expected(logits, count))
