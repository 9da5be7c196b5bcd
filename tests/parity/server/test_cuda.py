"""The CUDA backend against the CPU's, on the same fp16 bundles.

Where there is a GPU: `pytest -m gpu tests/parity/server/test_cuda.py`.
Every check runs twice: on the GPU, and with the CUDA backend's own work on a CPU (`helpers.cuda_backend_on_cpu`). The
second run keeps the checks themselves in order on machines without a GPU, where the first one is skipped.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers import hugging_face
from helpers.backend_checks import (
    NEEDS,
    along,
    attention_of,
    copied,
    distance,
    greedy,
    mixed,
    scored_again,
)
from helpers.cuda_backend_on_cpu import cuda_backend_on_cpu
from helpers.cuda_bundles import CUDA_MODELS, DECODED
from helpers.driver import BundleDecoder
from translane_server.bundle.devices import why_no_cuda
from translane_server.runtime.backend import RowMove, StepNeeds
from translane_server.runtime.cuda.backend import CudaBackend
from translane_server.runtime.cuda.step_memory import STEPS_AT_ONCE
from translane_server.runtime.cuda.steps import buckets
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

pytestmark = pytest.mark.slow  # each model is exported first

CAPACITY, TARGET_CAPACITY, STEPS = 24, 20, 12
ROWS = CAPACITY  # a source of every length
SIZES: dict[str, Any] = {"rows": ROWS, "source_capacity": CAPACITY, "target_capacity": TARGET_CAPACITY}
LOGITS = StepNeeds(logits=True)
GPU, CPU = "on the GPU", "on a CPU"
BY_CHANCE = 2  # the seed of a stream that runs some of its work at once, and some as late as can be


def on_the_gpu(bundle, **sizes):
    return CudaBackend(Sessions(bundle, device="cuda", threads=1), **sizes)


def on_a_cpu(bundle, **sizes):
    return cuda_backend_on_cpu(bundle, seed=BY_CHANCE, **sizes)[0]


@pytest.fixture(scope="module", params=[pytest.param(GPU, marks=pytest.mark.gpu), CPU])
def open_backend(request):
    """Opens a CUDA backend on a bundle."""
    if request.param == CPU:
        return on_a_cpu
    if reason := why_no_cuda("fp16"):
        pytest.skip(f"CUDA does not run here: {reason}")
    return on_the_gpu


@pytest.fixture(scope="module", params=DECODED)
def model_and_bundle(request):
    return CUDA_MODELS[request.param].model_and_bundle()


@pytest.fixture(scope="module")
def bundle(model_and_bundle):
    return model_and_bundle[1]


@pytest.fixture(scope="module")
def start(bundle):
    return bundle.manifest.special_ids.decoder_start


@pytest.fixture(scope="module")
def tolerance(open_backend, bundle):
    """Of logits; on a CPU, there is nothing to tolerate."""
    return 0.0 if open_backend is on_a_cpu else bundle.manifest.parity.tolerance


@pytest.fixture(scope="module")
def sources(model_and_bundle):
    """One of every length from 1 to CAPACITY, in a mixed order."""
    end = model_and_bundle[0].config.eos_token_id
    ids = [number for source in hugging_face.sources(model_and_bundle[0], 40) for number in source[:-1]]
    return [[*ids[length : 2 * length - 1], end] for length in (1 + 7 * row % CAPACITY for row in range(ROWS))]


@pytest.fixture(scope="module")
def theirs(bundle):
    """The CPU's own backend."""
    backend = OrtBackend(Sessions(bundle, threads=1), **SIZES)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def ours(open_backend, bundle):
    """The CUDA backend; every test encodes its own sources."""
    backend = open_backend(bundle, **SIZES)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def fed(theirs, sources, start):
    """What the CPU's greedy search feeds the rows, [STEPS, ROWS]."""
    theirs.encode(sources, 0)
    return greedy(theirs, start, ROWS, STEPS)


@pytest.fixture(scope="module")
def expected(theirs, sources, fed):
    """What each step along `fed` returns on the CPU."""
    theirs.encode(sources, 0)
    return along(theirs, fed, LOGITS)


def test_sources_of_every_length_decode_as_on_the_cpu(ours, sources, fed, expected, tolerance):
    assert sorted(map(len, sources)) == list(range(1, CAPACITY + 1))
    ours.encode(sources, 0)
    found = along(ours, fed, LOGITS)
    assert distance(found, expected) <= tolerance
    for step, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(step["log_probs"], other["log_probs"], atol=tolerance)
        rows = np.arange(ROWS)[:, None]
        chosen = other["logits"][rows, step["token_ids"]]  # by the CPU's account
        assert (other["logits"].max(1, keepdims=True) - chosen).max() <= 2 * tolerance


def test_attending_to_padding_would_show(bundle, theirs, sources, fed, expected):
    """The check above could not tell lengths that are ignored from right ones, if padding did not change the logits."""
    pad = bundle.manifest.special_ids.pad
    theirs.encode([[*source, *[pad] * (CAPACITY - len(source))] for source in sources], 0)
    assert distance(along(theirs, fed, LOGITS), expected) > 2 * bundle.manifest.parity.tolerance


def test_a_source_encoded_alone_is_as_among_longer_ones(ours, sources, fed, expected, tolerance):
    for row, source in enumerate(sources):
        ours.encode([source], row)
    assert distance(along(ours, fed, LOGITS), expected) <= tolerance


def test_attention_is_the_cpus_and_none_of_it_is_on_padding(bundle, ours, theirs, sources, fed):
    weights = []
    for backend in (ours, theirs):
        backend.encode(sources, 0)
        along(backend, fed, StepNeeds(num_candidates=3), keep=True)
        weights.append(attention_of(backend, ROWS, STEPS)[..., :CAPACITY])
    np.testing.assert_allclose(weights[0], weights[1], atol=bundle.manifest.parity.attention_tolerance)
    for row, source in enumerate(sources):
        assert not weights[0][row, :, len(source) :].any()
        np.testing.assert_allclose(weights[0][row].sum(1), 1, atol=0.01)


def test_rows_move_with_their_sentences_and_with_a_part_of_their_tokens(ours, theirs, sources, fed, tolerance):
    half = STEPS // 2
    length = [len(source) for source in sources]
    moves = [
        RowMove(0, 3, half, length[0]),
        RowMove(5, 2, half, length[5]),
        RowMove(0, 1, half, length[0]),
        RowMove(ROWS - 1, 6, half, length[ROWS - 1]),
        RowMove(9, 8, half, length[9]),
    ]
    holds = np.arange(ROWS)  # whose sentence each row has
    for move in moves:
        holds[move.target] = holds[move.source]
    outcomes = []
    for backend in (ours, theirs):
        backend.encode(sources, 0)
        along(backend, fed[:half], StepNeeds())
        backend.move_rows(moves)
        backend.move_rows([RowMove(9, 8, half, 0, half - 1)])
        outcomes.append(along(backend, fed[half:, holds], LOGITS, np.full(ROWS, half, np.int32)))
    assert holds[:10].tolist() == [0, 0, 5, 0, 4, 5, ROWS - 1, 7, 9, 9]
    found, expected = outcomes
    assert distance(found, expected) <= tolerance


def test_a_row_is_the_same_however_many_are_beside_it(ours, sources, fed, expected, tolerance):
    """Below, at and above every number of rows that steps are captured for."""
    counts = {n for size in buckets(ROWS) for n in (size - 1, size, size + 1) if 1 <= n <= ROWS}
    for n in sorted(counts):
        ours.encode(sources[:n], 0)
        assert distance(along(ours, fed[:, :n], LOGITS), expected, slice(n)) <= tolerance, f"{n} rows"


def test_steps_ahead_choose_what_single_steps_choose(ours, sources, start):
    for n in (1, 5, ROWS):
        ours.encode(sources[:n], 0)
        single = greedy(ours, start, n, 2 * STEPS_AT_ONCE + 1)
        ours.encode(sources[:n], 0)
        for first in (0, STEPS_AT_ONCE):
            ahead = ours.decode_ahead(single[first], np.full(n, first, np.int32), STEPS_AT_ONCE)
            assert np.array_equal(ahead, single[first + 1 : first + 1 + STEPS_AT_ONCE]), f"{n} rows"


def test_a_captured_step_is_bit_for_bit_one_that_is_not(open_backend, bundle, sources, start, caplog):
    outcomes = []
    with caplog.at_level(logging.WARNING):
        for capture in (True, False):
            backend = open_backend(bundle, capture=capture, **SIZES)
            steps = []
            for n in (3, 5, ROWS):
                backend.encode(sources[:n], 0)
                tokens = greedy(backend, start, n, STEPS)
                for needs in NEEDS:
                    steps += along(backend, tokens[:4], needs)
                steps.append({"ahead": backend.decode_ahead(tokens[0], np.zeros(n, np.int32), STEPS_AT_ONCE).copy()})
            outcomes.append(steps)
            backend.close()
    assert not caplog.records, "a step was not captured"
    for captured, other in zip(*(map(_possible, steps) for steps in outcomes), strict=True):
        assert captured.keys() == other.keys()
        for name, array in captured.items():
            assert np.array_equal(array, other[name]), name


def _possible(step):
    """The step without the ids of impossible candidates, those of tokens that are never generated.

    CUDA's TopK fills its block with the lowest finite number. That is more than minus infinity, so that places beyond
    the possible candidates hold ids of the filling.
    """
    if "log_probs" not in step:
        return step
    possible = step["log_probs"] > np.finfo(np.float16).min
    return {
        **step,
        "token_ids": np.where(possible, step["token_ids"], -1),
        "log_probs": np.where(possible, step["log_probs"], 0),
    }


def test_a_bundle_warms_up_and_closes_again_and_again(open_backend, bundle, sources, fed):
    found = []
    for _ in range(3):
        backend = open_backend(bundle, **SIZES)
        backend.warm_up()
        backend.encode(sources, 0)
        found.append(copied(backend.decode_step(fed[0], np.zeros(ROWS, np.int32), LOGITS)))
        backend.close()
    for other in found[1:]:
        assert np.array_equal(found[0]["logits"], other["logits"])


def test_beams_and_other_searches_find_what_the_cpu_finds(open_backend, bundle, model_and_bundle, theirs, tolerance):
    """Except where choices tie: so translations that differ are counted, and all are scored once more by the CPU.

    Sampled sentences are not compared: a number drawn between two probabilities falls to either side of a tie.
    """
    ids = bundle.manifest.special_ids
    sizes: dict[str, Any] = {"rows": 16, "source_capacity": CAPACITY, "target_capacity": TARGET_CAPACITY}
    sentences = [
        sentence._replace(options=replace(sentence.options, scores=True))
        for sentence in mixed(hugging_face.sources(model_and_bundle[0], 64, seed=1))
        if sentence.options.sampling is None
    ]
    with BundleDecoder(bundle, **sizes) as driver:
        expected = driver.together(sentences)
    with BundleDecoder(bundle, open_backend=open_backend, **sizes) as driver:
        outcomes = [driver.together(sentences), driver.arriving(sentences, seed=1)]
    for found in outcomes:
        different = 0
        for sentence, hypotheses, others in zip(sentences, found, expected, strict=True):
            assert len(hypotheses) == len(others)
            best, other = hypotheses[0], others[0]
            if best.token_ids == other.token_ids:
                assert best.score == pytest.approx(other.score, abs=tolerance * (1 + len(best.token_ids)))
                np.testing.assert_allclose(best.token_log_probs, other.token_log_probs, atol=2 * tolerance)
                assert len(best.alignment) == len(other.alignment)
                continue
            different += 1
            wanted = scored_again(theirs, ids, sentence, best)
            np.testing.assert_allclose(best.token_log_probs, wanted, atol=2 * tolerance)
        print(f"{different} of {len(sentences)} sentences are translated otherwise than on the CPU")
        assert different <= len(sentences) // 4
