"""The CUDA backend against the CPU's, on the same fp16 bundle. Run where there is a GPU: `pytest -m gpu`."""

import numpy as np
import pytest

from helpers.bundles import SOURCES, random_bundle
from translane_server.backend import RowMove, StepNeeds
from translane_server.bundle import load_bundle
from translane_server.devices import choose_device
from translane_server.errors import DeviceError
from translane_server.ort import OrtBackend
from translane_server.sessions import Sessions
from translane_server.tokenizer import load_tokenizer

ROWS, SOURCE_CAPACITY, TARGET_CAPACITY, STEPS = 8, 32, 24, 16
LOGITS = StepNeeds(logits=True)


def why_not():
    try:
        choose_device("cuda", "fp16")
    except DeviceError as error:
        return str(error)
    return ""


REASON = why_not()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(REASON), reason=REASON)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda") / "bundle"
    return load_bundle(random_bundle(folder, export={"precision": "fp16"}, d_model=64, heads=2))


def backend(bundle, device):
    return OrtBackend(
        Sessions(bundle, device=device, threads=1),
        rows=ROWS,
        source_capacity=SOURCE_CAPACITY,
        target_capacity=TARGET_CAPACITY,
    )


def decode(runner, bundle, sources, feed=None):
    """Logits of STEPS greedy steps of `sources`, and the tokens fed; `feed` forces the tokens."""
    runner.encode(sources, 0)
    tokens = np.full(len(sources), bundle.manifest.special_ids.decoder_start, np.int64)
    logits, fed = [], []
    for step in range(STEPS):
        fed.append(tokens.copy())
        candidates = runner.decode_step(tokens, np.full(len(sources), step, np.int32), LOGITS)
        logits.append(candidates.logits.copy())
        tokens = candidates.token_ids[:, 0].copy() if feed is None else feed[step + 1] if step + 1 < STEPS else tokens
    return np.stack(logits), np.stack(fed)


@pytest.fixture(scope="module")
def sources(bundle):
    return [ids[:SOURCE_CAPACITY] for ids in load_tokenizer(bundle).encode(SOURCES[:ROWS])]


def test_logits_are_the_cpus(bundle, sources):
    expected, fed = decode(backend(bundle, "cpu"), bundle, sources)
    logits, _ = decode(backend(bundle, "cuda"), bundle, sources, feed=fed)
    assert np.abs(logits - expected).max() < bundle.manifest.parity.tolerance


def test_attention_is_the_cpus(bundle, sources):
    needs, start = StepNeeds(attention=True), np.full(len(sources), bundle.manifest.special_ids.decoder_start)
    weights = []
    for device in ("cpu", "cuda"):
        runner = backend(bundle, device)
        runner.encode(sources, 0)
        weights.append(runner.decode_step(start, np.zeros(len(sources), np.int32), needs).attention.copy())
    np.testing.assert_allclose(weights[1], weights[0], atol=bundle.manifest.parity.attention_tolerance)
    assert not weights[1][weights[0] == 0].any()


def test_alone_and_batched_give_the_same_tokens(bundle, sources):
    runner = backend(bundle, "cuda")
    _, together = decode(runner, bundle, sources)
    for row, source in enumerate(sources):
        _, alone = decode(runner, bundle, [source])
        assert alone[:, 0].tolist() == together[:, row].tolist()


def test_a_moved_row_goes_on_where_it_was(bundle, sources):
    runner = backend(bundle, "cuda")
    expected, fed = decode(runner, bundle, sources)
    runner.encode(sources, 0)
    half = STEPS // 2
    for step in range(half):
        runner.decode_step(fed[step], np.full(ROWS, step, np.int32))
    runner.move_rows([RowMove(ROWS - 1, 0, target_length=half, source_length=len(sources[-1]))])
    step = runner.decode_step(fed[half][[ROWS - 1]], np.full(1, half, np.int32), LOGITS)
    assert np.abs(step.logits[0] - expected[half, ROWS - 1]).max() < bundle.manifest.parity.tolerance


def test_warm_up_and_close(bundle):
    runner = backend(bundle, "cuda")
    runner.warm_up()
    runner.close()
