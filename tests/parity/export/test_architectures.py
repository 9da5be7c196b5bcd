"""Whatever a published architecture is made of, its graphs are PyTorch's equals: every step, batch and format."""

from typing import Any

import numpy as np
import pytest
import torch

from helpers.architectures import ARCHITECTURES, EXPORT_SIZES, TRAINED
from helpers.bundles import bundle_model, random_bundle
from helpers.sessions import open_session
from translane_export.checks.alignment_layer import recorded_attention
from translane_export.checks.recording import record_decodes
from translane_export.checks.verify import compare, passes, verification_sources
from translane_export.graphs.encoder_decoder import DecoderGraph, EncoderGraph
from translane_export.graphs.numerics import choose_numerics
from translane_export.graphs.signatures import bundle_signatures
from translane_export.graphs.torchscript import TorchScriptBackend, save_torchscript
from translane_export.sources.bundle import read_bundle
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.backend import StepNeeds
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

pytestmark = pytest.mark.slow

LENGTHS = (9, 1, 24, 16, 2, 7)
CAPACITY = 24  # twice what relative positions tell apart
VOCABULARY = 40

EVERY = ARCHITECTURES | TRAINED

every_architecture = pytest.mark.parametrize("name", EVERY)


def checkpoint_of(name):
    return {**EXPORT_SIZES, **EVERY[name]}


def ranked(model, logits):
    """What the graph gives for PyTorch's `logits` [V]: suppressed ids apart, the same."""
    log_probs = logits.log_softmax(-1)
    for values in (logits, log_probs):
        values[list(model.config.suppressed_ids)] = -torch.inf
    return logits.numpy(), log_probs.numpy()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    opened = {}

    def get(name):
        if name not in opened:
            opened[name] = load_bundle(random_bundle(folder / name, **checkpoint_of(name)))
        return opened[name]

    return get


@every_architecture
@torch.inference_mode()
def test_every_step(bundles, name):
    bundle, model = bundles(name), bundle_model(**checkpoint_of(name))
    assert bundle.manifest.parity is not None
    assert bundle.manifest.alignment is not None
    assert passes(bundle.manifest.parity)
    draw = np.random.default_rng(0)
    vocabularies = model.config.source_vocab_size, model.config.target_vocab_size
    sources = [draw.integers(0, vocabularies[0], length).tolist() for length in LENGTHS]
    targets = draw.integers(0, vocabularies[1], (len(sources), CAPACITY))
    expected, attended = [], []
    for source, target in zip(sources, targets, strict=True):
        length = torch.tensor([len(source)])
        memory = model.encode(torch.tensor([source]), length)
        with recorded_attention(model) as weights:
            logits = model.decode(torch.from_numpy(target[None]), memory, length)[0]
        expected.append([ranked(model, step) for step in logits])
        attended.append(weights[bundle.manifest.alignment.layer][0].mean(0).numpy())  # [T, S]
    sizes: dict[str, Any] = {"rows": len(sources), "source_capacity": CAPACITY, "target_capacity": CAPACITY}
    backend = OrtBackend(Sessions(bundle, threads=2), encode_tokens=64, **sizes)
    backend.encode(sources, 0)
    for step in range(CAPACITY + len(sources) - 1):  # row r is r tokens behind row 0
        rows = np.arange(len(sources))
        positions = np.clip(step - rows, 0, CAPACITY - 1).astype(np.int32)
        needs = StepNeeds(vocabularies[1] + 9, logits=True)  # more than there are
        candidates = backend.decode_step(targets[rows, positions], positions, needs, keep=step)
        assert candidates.logits is not None
        assert candidates.log_probs is not None
        for row in rows:
            logits, log_probs = expected[row][positions[row]]
            np.testing.assert_allclose(candidates.logits[row], logits, atol=1e-4, rtol=0)
            given = candidates.log_probs[row]
            np.testing.assert_allclose(given, log_probs[candidates.token_ids[row]], atol=1e-4, rtol=0)
            np.testing.assert_allclose(given, np.sort(log_probs)[::-1], atol=1e-4, rtol=0)
        over = step - CAPACITY + 1  # the row that has now been fed its last token
        if over >= 0:
            attention, tokens = backend.align(over, over, [over] * CAPACITY), LENGTHS[over]
            assert attention.shape == (CAPACITY, CAPACITY)
            assert attention.dtype == np.float32
            np.testing.assert_allclose(attention[:, :tokens], attended[over], atol=1e-5, rtol=0)
            assert not attention[:, tokens:].any()
    best = backend.decode_step(targets[:, 0], np.zeros(len(sources), np.int32))  # gives what is asked for
    assert (best.token_ids.shape, best.logits) == ((len(sources), 1), None)


@every_architecture
@pytest.mark.parametrize("threads", [1, 2])
def test_alone_and_batched_are_the_same_to_the_bit(bundles, name, threads):
    bundle = bundles(name)

    draw = np.random.default_rng(0)
    encoder = open_session(bundle.path("encoder.onnx"), threads=threads)
    lengths = np.array(LENGTHS, np.int32)
    source_ids = draw.integers(0, VOCABULARY, (len(lengths), CAPACITY))
    together = encoder.run(None, {"source_ids": source_ids, "source_lengths": lengths})
    for row, length in enumerate(lengths):
        alone = encoder.run(
            None, {"source_ids": source_ids[row : row + 1, :length], "source_lengths": lengths[row : row + 1]}
        )
        for expected, actual in zip(alone, together, strict=True):
            assert np.array_equal(actual[row, :, :length], expected[0])

    decoder, rows = open_session(bundle.path("decoder.onnx"), threads=threads), 33
    inputs: dict[str, np.ndarray] = {
        tensor.name: draw.standard_normal(
            (rows, *(CAPACITY if isinstance(size, str) else size for size in tensor.shape[1:])), dtype=np.float32
        )
        for tensor in decoder.get_inputs()
        if tensor.name.startswith(("self_", "cross_"))
    }
    inputs["token_ids"] = draw.integers(0, 30, rows)
    inputs["positions"] = draw.integers(0, CAPACITY, rows).astype(np.int32)
    inputs["source_lengths"] = draw.integers(1, CAPACITY, rows).astype(np.int32)

    def run(chosen):
        asked = {"num_candidates": np.array([4]), "with_candidates": np.array(True), "with_log_probs": np.array(True)}
        return decoder.run(None, asked | {tensor: value[chosen] for tensor, value in inputs.items()})

    together = run(np.arange(rows))
    for count in (1, 1, 2, 3, 5, 8, 17, 32):
        chosen = draw.permutation(rows)[:count]
        for expected, actual in zip(together, run(chosen), strict=True):
            assert np.array_equal(actual, expected[chosen])


@every_architecture
def test_a_bundle_reads_back_as_the_model(bundles, name):
    checkpoint, model = read_bundle(bundles(name).folder), bundle_model(**checkpoint_of(name))
    lost = {"dropout": model.config.dropout}
    assert checkpoint.config.to_dict() | lost == model.config.to_dict()
    state = model.state_dict()
    assert checkpoint.state_dict.keys() == state.keys()
    for key, tensor in state.items():
        assert torch.equal(checkpoint.state_dict[key], tensor), key


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_torchscript(tmp_path, name):
    model = bundle_model(**checkpoint_of(name))
    graphs = bundle_signatures(model.config, torch.float32, form="torchscript")
    with torch.no_grad():
        save_torchscript(EncoderGraph(model), DecoderGraph(model), graphs, tmp_path)
    backend = TorchScriptBackend(tmp_path, model.config, rows=8, source_capacity=12, target_capacity=20)
    decodes = record_decodes(backend, model.config, verification_sources([], model.config, 12))
    parity = compare(decodes, model, choose_numerics("fp32", None))
    assert passes(parity), parity
