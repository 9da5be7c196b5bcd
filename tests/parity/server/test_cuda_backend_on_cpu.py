"""The CUDA backend's own work (buckets, copies, captured steps, kernels) gives what the CPU's backend gives.

The graphs run on the CPU, and the stream does nothing before somebody waits for it: see `helpers.cuda_backend_on_cpu`.
What only a GPU can show is in test_cuda.py, and what both can show.
"""

import logging
from typing import Any

import numpy as np
import pytest

from helpers import hugging_face
from helpers.backend_checks import NEEDS, attention_of, mixed
from helpers.cuda_backend_on_cpu import cuda_backend_on_cpu
from helpers.cuda_bundles import CUDA_MODELS, DECODED
from helpers.driver import BundleDecoder
from translane_server.runtime.backend import BEST_TOKEN_ALONE, StepNeeds
from translane_server.runtime.cuda import steps
from translane_server.runtime.cuda.step_memory import STEPS_AT_ONCE
from translane_server.runtime.cuda.steps import buckets
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

pytestmark = pytest.mark.slow  # each model is exported first

SIZES: dict[str, Any] = {"rows": 7, "source_capacity": 24, "target_capacity": 16}


@pytest.fixture(scope="module", params=DECODED)
def model_and_bundle(request):
    return CUDA_MODELS[request.param].model_and_bundle()


@pytest.fixture(scope="module")
def bundle(model_and_bundle):
    return model_and_bundle[1]


@pytest.fixture(scope="module")
def sources(model_and_bundle):
    return hugging_face.sources(model_and_bundle[0], 40)


@pytest.fixture(params=[0, 1, 2], ids=["late", "at once", "by chance"])
def pace(request):
    """When the stream runs what is queued."""
    return {"seed": request.param}


def reference(bundle):
    return OrtBackend(Sessions(bundle, threads=1), **SIZES)


def assert_same(found, expected):
    for name in ("token_ids", "log_probs", "logits"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        assert ours is None or np.array_equal(ours, theirs), name


def test_every_step_is_the_cpus_whatever_it_needs_and_however_many_rows_take_it(bundle, sources, pace):
    ours, _ = cuda_backend_on_cpu(bundle, **pace, **SIZES)
    theirs = reference(bundle)
    start = bundle.manifest.special_ids.decoder_start
    for n in range(1, 8):
        for backend in (ours, theirs):
            backend.encode(sources[:n], 0)
        tokens = np.full(n, start)
        for position in range(3):
            positions = np.full(n, position, np.int32)
            for needs in NEEDS:
                expected = theirs.decode_step(tokens, positions, needs, position)
                assert_same(ours.decode_step(tokens, positions, needs, position), expected)
                chosen = expected.token_ids[:, 0].copy()
            tokens = chosen
        assert np.array_equal(attention_of(ours, n, 3), attention_of(theirs, n, 3))
    ours.close()


@pytest.mark.parametrize("keeps", [False, True])
def test_steps_ahead_feed_what_they_choose(bundle, sources, pace, keeps):
    ours, runtime = cuda_backend_on_cpu(bundle, **pace, **SIZES)
    theirs = reference(bundle)
    start = bundle.manifest.special_ids.decoder_start
    for n in (1, 3, 5, 7):
        for backend in (ours, theirs):
            backend.encode(sources[:n], 0)
        tokens, positions = np.full(n, start), np.zeros(n, np.int32)
        for count in (1, STEPS_AT_ONCE, 3, STEPS_AT_ONCE):
            keep = int(positions[0]) if keeps else None
            expected = GraphBackend.decode_ahead(theirs, tokens, positions, count, keep=keep)
            launched = runtime.counts["launch_graph"]
            found = ours.decode_ahead(tokens, positions, count, keep=keep)
            assert np.array_equal(found, expected)
            assert runtime.counts["launch_graph"] == launched + count
            tokens, positions = expected[-1], positions + np.int32(count)
        if keeps:
            assert np.array_equal(attention_of(ours, n, int(positions[0])), attention_of(theirs, n, int(positions[0])))
    ours.close()


def test_a_step_is_one_copy_in_one_launch_one_copy_out_and_one_wait(bundle, sources):
    ours, runtime = cuda_backend_on_cpu(bundle, **SIZES)
    ours.warm_up()
    ours.encode(sources[:7], 0)
    runtime.synchronize()
    tokens, positions = np.full(7, bundle.manifest.special_ids.decoder_start), np.zeros(7, np.int32)
    for needs in (BEST_TOKEN_ALONE, StepNeeds(), StepNeeds(num_candidates=8)):
        before = dict(runtime.counts)
        kernels = len(runtime.launches)
        ours.decode_step(tokens, positions, needs)
        counts = {name: count - before[name] for name, count in runtime.counts.items()}
        assert counts == {"synchronize": 1, "launch_graph": 1, "capture": 0, "copy": 2, "run": 0}
        assert len(runtime.launches) - kernels == (needs == BEST_TOKEN_ALONE)  # the feed-back, within the graph
    ours.close()


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "kernel by kernel"])
def test_an_engine_decodes_every_kind_of_sentence_as_on_the_cpu(bundle, sources, capture):
    sentences = mixed(sources)
    sizes: dict[str, Any] = {"rows": 9, "source_capacity": 24, "target_capacity": 16}
    with BundleDecoder(bundle, **sizes) as driver:
        expected = driver.together(sentences)

    def open_backend(bundle, **sizes):
        return cuda_backend_on_cpu(bundle, capture=capture, **sizes)[0]

    with BundleDecoder(bundle, open_backend=open_backend, **sizes) as driver:
        assert driver.together(sentences) == expected
        assert driver.arriving(sentences, seed=1) == expected
        plain = [sentence for sentence in sentences if not sentence.options.scores]
        assert driver.together(plain) == [
            found for found, sentence in zip(expected, sentences, strict=True) if sentence in plain
        ]


@pytest.mark.parametrize("capture_fails", ["within", "at its end"])
def test_where_capturing_fails_steps_run_all_the_same_and_the_log_says_so_once(bundle, sources, caplog, capture_fails):
    ours, runtime = cuda_backend_on_cpu(bundle, capture_fails=capture_fails, **SIZES)
    theirs = reference(bundle)
    with caplog.at_level(logging.WARNING):
        ours.warm_up()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert {"within": "not permitted", "at its end": "out of memory"}[capture_fails] in caplog.text
    for backend in (ours, theirs):
        backend.encode(sources[:5], 0)
    tokens, positions = np.full(5, bundle.manifest.special_ids.decoder_start), np.zeros(5, np.int32)
    for needs in NEEDS:
        assert_same(ours.decode_step(tokens, positions, needs), theirs.decode_step(tokens, positions, needs))
    assert runtime.counts["capture"] == runtime.counts["launch_graph"] == 0
    ours.close()


def test_sources_that_do_not_fit_at_once_are_encoded_in_turns(bundle, sources, pace):
    ours, _ = cuda_backend_on_cpu(bundle, **pace, encode_tokens=30, **SIZES)
    theirs = reference(bundle)
    for backend in (ours, theirs):
        backend.encode(sources[:7], 0)
    tokens, positions = np.full(7, bundle.manifest.special_ids.decoder_start), np.zeros(7, np.int32)
    needs = StepNeeds(logits=True)
    assert_same(ours.decode_step(tokens, positions, needs), theirs.decode_step(tokens, positions, needs))
    ours.close()


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 31, 64, 100])
def test_buckets_end_with_all_rows_and_waste_at_most_a_third_of_a_step(rows):
    sizes = buckets(rows)
    assert sizes[-1] == rows
    assert sizes == sorted(set(sizes))
    for n in range(1, rows + 1):
        bucket = next(size for size in sizes if size >= n)
        assert bucket - n <= bucket / 3


def test_what_cuda_would_not_check_is_checked(bundle, sources):
    ours, _ = cuda_backend_on_cpu(bundle, **SIZES)
    ours.encode(sources[:2], 0)
    tokens, last = np.zeros(2, np.int64), SIZES["target_capacity"]
    with pytest.raises(AssertionError, match="full"):
        ours.decode_step(tokens, np.array([0, last], np.int32))
    with pytest.raises(AssertionError, match="full"):
        ours.decode_ahead(tokens, np.array([0, last - 1], np.int32), 2)
    with pytest.raises(AssertionError, match="token"):
        ours.decode_step(np.array([0, 1 << 20]), np.zeros(2, np.int32))
    with pytest.raises(AssertionError, match="rows"):
        ours.decode_step(np.zeros(8, np.int64), np.zeros(8, np.int32))
    ours.close()


def test_steps_used_longest_ago_make_room_for_new_ones(bundle, sources, monkeypatch):
    monkeypatch.setattr(steps, "_MOST_STEPS", 3)
    ours, runtime = cuda_backend_on_cpu(bundle, **SIZES)
    theirs = reference(bundle)
    for backend in (ours, theirs):
        backend.encode(sources[:2], 0)
    tokens, positions = np.full(2, bundle.manifest.special_ids.decoder_start), np.zeros(2, np.int32)
    for captured, count in enumerate((1, 2, 3), start=1):
        ours.decode_step(tokens, positions, StepNeeds(count))
        assert runtime.counts["capture"] == captured
    for count, captured in ((1, 3), (4, 4), (1, 4), (3, 4), (2, 5)):  # the third new one takes the place of the second
        needs = StepNeeds(count)
        assert_same(ours.decode_step(tokens, positions, needs), theirs.decode_step(tokens, positions, needs))
        assert runtime.counts["capture"] == captured
    ours.close()
