"""ONNX equals PyTorch at every step, whatever the architecture, with rows at different positions."""

from typing import Any

import numpy as np
import pytest
import torch

from helpers.architectures import TRAINED
from helpers.bundles import bundle_model, random_bundle
from helpers.sessions import open_session
from translane_server.backend import StepNeeds
from translane_server.bundle import load_bundle
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

LENGTHS = (9, 1, 4, 16, 2, 7)
CAPACITY = 16  # the model's every position


@pytest.mark.slow
@pytest.mark.parametrize("config", TRAINED.values(), ids=TRAINED.keys())
@torch.inference_mode()
def test_logits_at_every_step(tmp_path, config):
    config = {**config, "max_positions": CAPACITY}
    bundle = load_bundle(random_bundle(tmp_path / "bundle", **config))
    model = bundle_model(**config)
    draw = np.random.default_rng(0)
    sources = [draw.integers(4, model.config.source_vocab_size, length).tolist() for length in LENGTHS]
    targets = draw.integers(4, model.config.target_vocab_size, (len(sources), CAPACITY))
    expected = [
        model(torch.tensor([source]), torch.tensor([len(source)]), torch.from_numpy(target[None]))[0].numpy()
        for source, target in zip(sources, targets, strict=True)
    ]
    backend = OrtBackend(
        Sessions(bundle, threads=2),
        rows=len(sources),
        source_capacity=CAPACITY,
        target_capacity=CAPACITY,
    )
    backend.encode(sources[:4], 0)
    backend.encode(sources[4:], 4)
    # Row r is r tokens behind row 0: every step has rows of different lengths, and fewer rows at the end.
    for step in range(CAPACITY + len(sources) - 1):
        rows = np.arange(len(sources))
        positions = np.clip(step - rows, 0, CAPACITY - 1).astype(np.int32)
        candidates = backend.decode_step(targets[rows, positions], positions, StepNeeds(5, logits=True))
        assert candidates.logits is not None
        assert candidates.log_probs is not None
        for row in rows:
            logits = expected[row][positions[row]]
            np.testing.assert_allclose(candidates.logits[row], logits, atol=1e-4, rtol=0)
            log_probs = torch.log_softmax(torch.from_numpy(logits), -1).numpy()
            np.testing.assert_allclose(candidates.log_probs[row], np.sort(log_probs)[::-1][:5], atol=1e-4, rtol=0)
            np.testing.assert_allclose(
                candidates.log_probs[row], log_probs[candidates.token_ids[row]], atol=1e-4, rtol=0
            )


def test_the_encoder_gives_pytorch_s_cross_attention(tmp_path):
    bundle = load_bundle(random_bundle(tmp_path / "bundle"))
    model = bundle_model()
    session = open_session(bundle.path("encoder.onnx"))
    lengths = np.array([3, 8, 1], np.int32)
    source_ids = np.random.default_rng(0).integers(4, model.config.source_vocab_size, (3, 8))
    outputs = session.run(None, {"source_ids": source_ids, "source_lengths": lengths})
    with torch.inference_mode():
        memory = model.encode(torch.from_numpy(source_ids), torch.from_numpy(lengths))
        layers: Any = model.decoder.layers
        for index, layer in enumerate(layers):
            for expected, actual in zip(
                layer.cross_attention.project_keys_values(memory), outputs[2 * index : 2 * index + 2], strict=True
            ):
                for row, length in enumerate(lengths):
                    np.testing.assert_allclose(actual[row, :, :length], expected[row, :, :length], atol=1e-5)
