"""int8 bundles of every kind of architecture: near PyTorch, the same alone and batched, and read back as stored."""

import numpy as np
import pytest
import torch

from helpers.architectures import ARCHITECTURES, EXPORT_SIZES
from helpers.backend_checks import attention_of, copied
from helpers.bundles import SOURCES, bundle_model, random_bundle
from translane_export.checks.running import decode_greedily
from translane_export.sources.bundle import read_bundle
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.backend import StepNeeds
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow  # exports of every architecture take minutes

NAMES = (
    "Marian",
    "mBART",
    "T5 v1.1",
    "of everything",
    "rotary, grouped, windows, softmax1",
    "recurrent unit",
    "batch norm, pre",
)
ROWS, STEPS = 5, 6


@pytest.fixture(scope="module", params=NAMES)
def case(request, tmp_path_factory):
    """A bundle, and the model it is made of."""
    config = {**EXPORT_SIZES, **ARCHITECTURES[request.param]}
    folder = random_bundle(tmp_path_factory.mktemp("int8") / "bundle", export={"precision": "int8"}, **config)
    return load_bundle(folder), bundle_model(**config)


@pytest.fixture(scope="module")
def sentences(case):
    """Some of those the bundle was calibrated with, and what the decoder is fed: ranges hold for what is like them."""
    bundle, model = case
    sources = load_tokenizer(bundle).encode(SOURCES[:ROWS])
    targets = [each.token_ids for each in decode_greedily(bundle, sources, (), 1)]
    padding = [model.config.eos_id] * STEPS
    fed = [[model.config.start_id, *target, *padding][:STEPS] for target in targets]
    return sources, np.array(fed)


def decode(bundle, sources, targets):
    """Logits and attention weights of each step, fed `targets` [B, steps]."""
    backend = OrtBackend(Sessions(bundle, threads=2), rows=len(sources), source_capacity=24, target_capacity=STEPS)
    backend.encode(sources, 0)
    found = []
    for position in range(STEPS):
        positions = np.full(len(sources), position, np.int32)
        step = backend.decode_step(targets[:, position], positions, StepNeeds(4, logits=True), position)
        taken = copied(step)
        found.append(tuple(taken[name] for name in ("token_ids", "log_probs", "logits")))
    attention = attention_of(backend, len(sources), STEPS)
    return [(*step, attention[:, position]) for position, step in enumerate(found)]


@torch.inference_mode()
def test_logits_are_near_pytorch_s(case, sentences):
    bundle, model = case
    sources, targets = sentences
    found = np.stack([logits for _, _, logits, _ in decode(bundle, sources, targets)], axis=1)  # [B, steps, V]
    hidden = list(model.config.suppressed_ids)
    assert np.isneginf(found[..., hidden]).all()
    for row, source in enumerate(sources):
        length = torch.tensor([len(source)])
        memory = model.encode(torch.tensor([source]), length)
        expected = model.decode(torch.from_numpy(targets[row : row + 1]), memory, length)[0].numpy()
        difference = np.delete(found[row] - expected, hidden, axis=1)
        assert difference.std() < 0.1 * np.delete(expected, hidden, axis=1).std()
        assert difference.std() > 0  # it is rounded


def test_rows_are_the_same_to_the_bit_alone_and_together(case, sentences):
    bundle, _ = case
    sources, targets = sentences
    together = decode(bundle, sources, targets)
    for row, source in enumerate(sources):
        for expected, alone in zip(together, decode(bundle, [source], targets[row : row + 1]), strict=True):
            for one, other in zip(expected, alone, strict=True):
                np.testing.assert_array_equal(other[0], one[row])


def test_weights_read_back_are_the_model_s_to_half_a_unit(case):
    bundle, model = case
    checkpoint = read_bundle(bundle.folder)
    assert checkpoint.config.to_dict() | {"dropout": model.config.dropout} == model.config.to_dict()
    state = model.state_dict()
    assert checkpoint.state_dict.keys() == state.keys()
    rounded = 0
    for name, tensor in state.items():
        found = checkpoint.state_dict[name]
        if torch.equal(found, tensor):
            continue
        unit = tensor.abs().amax(-1, keepdim=True) / 63
        assert tensor.ndim == 2, name
        assert ((found - tensor).abs() <= 0.501 * unit).all(), name
        rounded += 1
    assert rounded > 10
