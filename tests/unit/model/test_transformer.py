"""No position sees a later one, padding changes nothing, tying shares storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers.architectures import ARCHITECTURES
from translane_export.model import PRESETS, Transformer, TransformerConfig, label_smoothed_cross_entropy

SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 3, 0, 0, 0]])
SOURCE_LENGTHS = torch.tensor([5, 3, 2])
TARGET = torch.tensor([[2, 4, 5, 6], [2, 7, 8, 9], [2, 10, 0, 0]])
TARGET_LENGTHS = torch.tensor([4, 4, 2])
SIDES = ("encoder", "decoder")
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}

every_arrangement = pytest.mark.parametrize(
    "arrangement",
    [
        {"norm": "post", "activation": "relu"},
        {"norm": "pre", "activation": "relu"},
        {"norm": "post", "activation": "gelu"},
        {"norm": "pre", "activation": "silu", "positions": "learned", "scale_embeddings": False},
        {"norm": "post", "activation": "relu", "head_size": 5},
        *ARCHITECTURES.values(),
    ],
    ids=lambda arrangement: "-".join(str(value) for value in arrangement.values()),
)


# ---- what may depend on what ----


@every_arrangement
@pytest.mark.parametrize("changed", range(4))
def test_no_decoder_position_sees_a_later_one(make_model, arrangement, changed):
    model = make_model(**arrangement)
    memory = model.encode(SOURCE, SOURCE_LENGTHS)
    other_target = TARGET.clone()
    other_target[:, changed] = 11

    before = model.decode(TARGET, memory, SOURCE_LENGTHS)
    after = model.decode(other_target, memory, SOURCE_LENGTHS)

    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.isclose(before[:, changed], after[:, changed]).all()


@every_arrangement
def test_a_padded_batch_equals_each_sentence_alone(make_model, arrangement):
    model = make_model(**arrangement)

    batched = model(SOURCE, SOURCE_LENGTHS, TARGET)

    for row, (source_length, target_length) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        alone = model(SOURCE[row : row + 1, :source_length], source_length[None], TARGET[row : row + 1, :target_length])
        torch.testing.assert_close(batched[row : row + 1, :target_length], alone, **EXACT)


@every_arrangement
def test_what_stands_in_the_padding_changes_nothing(make_model, arrangement):
    model = make_model(**arrangement)
    padding = torch.arange(5) >= SOURCE_LENGTHS[:, None]
    other_source = SOURCE.masked_fill(padding, 12)

    assert torch.equal(model(SOURCE, SOURCE_LENGTHS, TARGET), model(other_source, SOURCE_LENGTHS, TARGET))


def test_target_lengths_leave_real_positions_as_they_are(make_model):
    model = make_model()
    memory = model.encode(SOURCE, SOURCE_LENGTHS)

    causal_only = model.decode(TARGET, memory, SOURCE_LENGTHS)
    causal_and_padding = model.decode(TARGET, memory, SOURCE_LENGTHS, TARGET_LENGTHS)

    real = TARGET != 0
    torch.testing.assert_close(causal_only[real], causal_and_padding[real], **EXACT)


def test_forward_is_encode_then_decode(make_model):
    model = make_model()

    logits = model.decode(TARGET, model.encode(SOURCE, SOURCE_LENGTHS), SOURCE_LENGTHS, TARGET_LENGTHS)

    assert logits.shape == (3, 4, 17)
    assert torch.equal(logits, model(SOURCE, SOURCE_LENGTHS, TARGET))


def test_both_sides_reach_the_logits(make_model):
    model = make_model()
    embedded_source = model.encoder.embedding.tokens.weight
    embedded_target = model.decoder.embedding.tokens.weight

    model(SOURCE, SOURCE_LENGTHS, TARGET).square().sum().backward()

    assert embedded_source.grad is not None
    assert embedded_source.grad[4].abs().max() > 0
    assert embedded_target.grad is not None
    assert embedded_target.grad[2].abs().max() > 0


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_training_alone(make_model, rate):
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = make_model(**(quiet | {rate: 0.5}))
    evaluated = [model(SOURCE, SOURCE_LENGTHS, TARGET) for _ in range(2)]
    model.train()
    trained = [model(SOURCE, SOURCE_LENGTHS, TARGET) for _ in range(2)]

    assert torch.equal(*evaluated)
    assert not torch.allclose(*trained)


def test_ids_past_the_position_limit_are_refused(make_model):
    model = make_model(max_positions=4)
    with pytest.raises(ValueError, match="position 4 is past the limit of 4 positions"):
        model(SOURCE, SOURCE_LENGTHS, TARGET)


# ---- weights ----


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
    untied = Transformer(replace(config, tie_embeddings="none"))
    source, target, output = (
        model.encoder.embedding.tokens.weight,
        model.decoder.embedding.tokens.weight,
        model.output_projection.weight,
    )

    assert shares_storage(target, output) == (tying != "none")
    assert shares_storage(source, target) == (tying == "three-way")
    assert parameter_count(untied) - parameter_count(model) == saved


def test_tied_weights_stay_tied_through_a_state_dict_and_a_step(make_model):
    model = make_model(source_vocab_size=17, tie_embeddings="three-way")
    model.load_state_dict(make_model(source_vocab_size=17, tie_embeddings="three-way").state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    model(SOURCE, SOURCE_LENGTHS, TARGET).square().sum().backward()
    optimizer.step()

    assert torch.equal(model.output_projection.weight, model.encoder.embedding.tokens.weight)


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


def names_of(model: nn.Module) -> set[str]:
    return set(model.state_dict())


def test_a_model_without_biases_has_none(make_config):
    names = names_of(Transformer(make_config(**ARCHITECTURES["T5 v1.1"])))
    assert not [name for name in names if name.endswith("bias")]


def test_what_an_architecture_adds_has_the_names_readers_map_to(make_config):
    plain = names_of(Transformer(make_config(positions="learned")))
    bart = names_of(Transformer(make_config(positions="learned", embedding_norm=True)))
    gated = names_of(Transformer(make_config(positions="learned", gated=True, relative_buckets=8)))
    assert bart - plain == {f"{side}.embedding.norm.{kind}" for side in SIDES for kind in ("weight", "bias")}
    layers = {"encoder": 2, "decoder": 3}
    assert gated - plain == {f"{side}.relative_positions.weight" for side in SIDES} | {
        f"{side}.layers.{layer}.feed_forward.gate_proj.{kind}"
        for side in SIDES
        for layer in range(layers[side])
        for kind in ("weight", "bias")
    }


def test_padding_may_be_what_the_decoder_starts_with(make_model):
    model = make_model(decoder_start_id=0)
    target = TARGET.clone()
    target[:, 0] = model.config.start_id

    whole = model(SOURCE, SOURCE_LENGTHS, target)

    for row, (source_length, target_length) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        memory = model.encode(SOURCE[row : row + 1, :source_length], source_length[None])
        alone = model.decode(target[row : row + 1, :target_length], memory, source_length[None])
        torch.testing.assert_close(whole[row : row + 1, :target_length], alone, **EXACT)


def test_the_logit_scale_is_of_the_logits_without_their_bias(make_model):
    model = make_model(logit_scale=1.0)
    scaled = Transformer(replace(model.config, logit_scale=0.25)).double().eval()
    scaled.load_state_dict(model.state_dict())
    bias = model.output_projection.bias

    expected = (model(SOURCE, SOURCE_LENGTHS, TARGET) - bias) * 0.25 + bias

    torch.testing.assert_close(scaled(SOURCE, SOURCE_LENGTHS, TARGET), expected, **EXACT)


def test_a_checkpoint_leaves_out_the_sinusoids(make_config):
    assert not [name for name in Transformer(make_config()).state_dict() if "position" in name]


# ---- learning ----


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
