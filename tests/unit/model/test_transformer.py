"""A whole model: dropout, tied and initial weights, and that it learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from translane_export.model import PRESETS, Transformer, TransformerConfig, label_smoothed_cross_entropy

SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 3, 0, 0, 0]])
SOURCE_LENGTHS = torch.tensor([5, 3, 2])
TARGET = torch.tensor([[2, 4, 5, 6], [2, 7, 8, 9], [2, 10, 0, 0]])
TARGET_LENGTHS = torch.tensor([4, 4, 2])
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


def test_target_lengths_leave_real_positions_as_they_are(make_model):
    model = make_model()
    memory = model.encode(SOURCE, SOURCE_LENGTHS)

    causal_only = model.decode(TARGET, memory, SOURCE_LENGTHS)
    causal_and_padding = model.decode(TARGET, memory, SOURCE_LENGTHS, TARGET_LENGTHS)

    real = TARGET != 0
    torch.testing.assert_close(causal_only[real], causal_and_padding[real], **EXACT)


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_training_alone(make_model, rate):
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = make_model(**(quiet | {rate: 0.5}))
    evaluated = [model(SOURCE, SOURCE_LENGTHS, TARGET) for _ in range(2)]
    model.train()
    trained = [model(SOURCE, SOURCE_LENGTHS, TARGET) for _ in range(2)]

    assert torch.equal(*evaluated)
    assert not torch.allclose(*trained)


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def shares_storage(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr()


@pytest.mark.parametrize("tying", ["none", "two-way", "three-way"])
def test_tying_shares_storage_and_saves_its_parameters(make_config, tying):
    config = make_config(source_vocab_size=17, tie_embeddings=tying)
    model = Transformer(config)
    embedding_size = 17 * config.d_model
    saved = {"none": 0, "two-way": 1, "three-way": 2}[tying] * embedding_size
    untied = Transformer(config.changed(tie_embeddings="none"))
    source, target, output = (
        model.encoder.embedding.tokens.weight,
        model.decoder.embedding.tokens.weight,
        model.output_projection.weight,
    )

    assert shares_storage(target, output) == (tying != "none")
    assert shares_storage(source, target) == (tying == "three-way")
    assert parameter_count(untied) - parameter_count(model) == saved


def test_the_base_preset_has_the_papers_size():
    with torch.device("meta"):
        model = Transformer(
            TransformerConfig(
                source_vocab_size=37000, target_vocab_size=37000, tie_embeddings="three-way", **PRESETS["base"]
            )
        )
    # Table 3 says 65 million; 63 with its 37,000 pieces, of which 19 are embeddings.
    assert parameter_count(model) == pytest.approx(63.1e6, rel=0.002)


def test_initialisation(make_config):
    config = make_config(d_model=64, target_vocab_size=500, tie_embeddings="none")
    model = Transformer(config)
    embedding = model.decoder.embedding.tokens.weight.detach()
    ffn_limit = (6 / (64 + config.ffn_size)) ** 0.5
    layer: Any = model.encoder.layers[0]
    up_proj = layer.feed_forward.up_proj

    assert embedding[config.pad_id].abs().max() == 0
    assert embedding[1:].std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert up_proj.weight.abs().max().item() == pytest.approx(ffn_limit, rel=0.02)
    assert all(module.bias.abs().max() == 0 for module in model.modules() if isinstance(module, nn.Linear))


def test_the_logit_scale_is_of_the_logits_without_their_bias(make_model):
    model = make_model(logit_scale=1.0)
    scaled = Transformer(model.config.changed(logit_scale=0.25)).double().eval()
    scaled.load_state_dict(model.state_dict())
    bias = model.output_projection.bias

    expected = (model(SOURCE, SOURCE_LENGTHS, TARGET) - bias) * 0.25 + bias

    torch.testing.assert_close(scaled(SOURCE, SOURCE_LENGTHS, TARGET), expected, **EXACT)


def test_a_tiny_model_overfits_a_copy_task(make_config):
    config = make_config(
        source_vocab_size=12, target_vocab_size=12, d_model=32, encoder_layers=1, decoder_layers=1, ffn_size=64,
        tie_embeddings="three-way", dropout=0.0,
    )  # fmt: skip
    model = Transformer(config)
    lengths = torch.randint(2, 7, (32,))
    source = torch.randint(4, 12, (32, 6)).masked_fill(torch.arange(6) >= lengths[:, None], config.pad_id)
    bos = torch.full((32, 1), config.bos_id)
    target = torch.cat((source, torch.zeros_like(bos)), dim=1).scatter(1, lengths[:, None], config.eos_id)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))

    for _ in range(150):
        logits = model(source, lengths, torch.cat((bos, target[:, :-1]), dim=1))
        loss = label_smoothed_cross_entropy(logits, target, config.pad_id, smoothing=0.1)
        optimizer.zero_grad()
        loss.mean.backward()
        optimizer.step()

    model.eval()
    memory, decoded = model.encode(source, lengths), bos
    for _ in range(7):
        following = model.decode(decoded, memory, lengths)[:, -1].argmax(dim=-1, keepdim=True)
        decoded = torch.cat((decoded, following), dim=1)
    real = target != config.pad_id
    assert torch.equal(decoded[:, 1:][real], target[real])
