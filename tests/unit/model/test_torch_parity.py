"""Same outputs and gradients as torch.nn.Transformer on the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from translane_export.model import Transformer, label_smoothed_cross_entropy
from translane_export.model.attention import MultiHeadAttention

SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 3, 0, 0, 0]])
SOURCE_LENGTHS = torch.tensor([5, 3, 2])
TARGET = torch.tensor([[2, 4, 5, 6], [2, 7, 8, 9], [2, 10, 0, 0]])
TARGET_LENGTHS = torch.tensor([4, 4, 2])
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
    theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())


@torch.no_grad()
def torch_transformer(model: Transformer) -> nn.Transformer:
    config = model.config
    activation = {"relu": nn.functional.relu, "gelu": nn.functional.gelu, "silu": nn.functional.silu}[config.activation]
    options: dict[str, Any] = {
        "d_model": config.d_model,
        "nhead": config.heads,
        "dim_feedforward": config.ffn_size,
        "dropout": config.dropout,
        "activation": activation,
        "norm_first": config.norm == "pre",
        "batch_first": True,
    }
    norms = [nn.LayerNorm(config.d_model) if config.norm == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**options), config.encoder_layers, norms[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), config.decoder_layers, norms[1])
    theirs = nn.Transformer(
        config.d_model, config.heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    )
    theirs = theirs.double().eval()

    layer: Any
    our_layer: Any
    for stack, our_stack in ((encoder, model.encoder), (decoder, model.decoder)):
        if stack.norm is not None:
            stack.norm.load_state_dict(our_stack.final_norm.state_dict())
        for layer, our_layer in zip(stack.layers, our_stack.layers, strict=True):
            copy_attention(layer.self_attn, our_layer.self_attention)
            residuals = [our_layer.self_attention_residual, our_layer.feed_forward_residual]
            if stack is decoder:
                copy_attention(layer.multihead_attn, our_layer.cross_attention)
                residuals.insert(1, our_layer.cross_attention_residual)
            for number, residual in enumerate(residuals, start=1):
                getattr(layer, f"norm{number}").load_state_dict(residual.norm.state_dict())
            layer.linear1.load_state_dict(our_layer.feed_forward.up_proj.state_dict())
            layer.linear2.load_state_dict(our_layer.feed_forward.down_proj.state_dict())
    return theirs


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_outputs_equal_torch_nn_transformer(make_model, norm, activation):
    model = make_model(norm=norm, activation=activation, encoder_layers=2, decoder_layers=3)
    theirs = torch_transformer(model)
    source_padding = torch.arange(5) >= SOURCE_LENGTHS[:, None]
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)

    hidden = theirs(
        model.encoder.embedding(SOURCE),
        model.decoder.embedding(TARGET),
        tgt_mask=later,
        src_key_padding_mask=source_padding,
        memory_key_padding_mask=source_padding,
        tgt_key_padding_mask=torch.arange(4) >= TARGET_LENGTHS[:, None],
    )

    real = TARGET != 0
    logits = model(SOURCE, SOURCE_LENGTHS, TARGET)
    torch.testing.assert_close(logits[real], model.output_projection(hidden)[real], **EXACT)


def test_gradients_equal_torch_nn_transformer(make_model):
    model = make_model()
    theirs = torch_transformer(model)
    source_padding = torch.arange(5) >= SOURCE_LENGTHS[:, None]
    hidden = theirs(
        model.encoder.embedding(SOURCE),
        model.decoder.embedding(TARGET),
        tgt_mask=torch.ones(4, 4, dtype=torch.bool).triu(1),
        src_key_padding_mask=source_padding,
        memory_key_padding_mask=source_padding,
    )
    label_smoothed_cross_entropy(model.output_projection(hidden), TARGET, pad_id=0).mean.backward()
    expected = theirs.encoder.layers[0].linear1.weight.grad

    label_smoothed_cross_entropy(model(SOURCE, SOURCE_LENGTHS, TARGET), TARGET, pad_id=0).mean.backward()

    layer: Any = model.encoder.layers[0]
    torch.testing.assert_close(layer.feed_forward.up_proj.weight.grad, expected, **EXACT)
