"""A student's configuration, and the weights that it has from the teacher."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers.bundles import SMALL_SIZES, random_model
from translane_export.distill.student import inherited, inherits, spread
from translane_export.model import Transformer, TransformerConfig

TEACHER = TransformerConfig(**{**SMALL_SIZES, "encoder_layers": 3, "decoder_layers": 3, "tie_embeddings": "two-way"})


def _logits(model: Transformer) -> torch.Tensor:
    source, target = torch.tensor([[5, 6, 7, 3]]), torch.tensor([[2, 8, 9]])
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(source, torch.tensor([4]), target)
    return logits


def _student(teacher: Transformer, **sizes: Any) -> Transformer:
    config = teacher.config.changed(**sizes)
    student = Transformer(config)
    student.load_state_dict(inherited(teacher.state_dict(), teacher.config, config))
    return student


@pytest.mark.parametrize(
    ("theirs", "ours", "layers"),
    [(3, 3, [0, 1, 2]), (3, 1, [0]), (6, 2, [0, 5]), (6, 3, [0, 2, 5]), (3, 6, [0, 0, 1, 1, 2, 2]), (1, 2, [0, 0])],
)
def test_layers_are_spread_from_the_first_to_the_last(theirs: int, ours: int, layers: list[int]) -> None:
    assert spread(theirs, ours) == layers


def test_a_student_of_the_teachers_sizes_is_the_teacher() -> None:
    teacher = random_model(TEACHER)
    assert torch.equal(_logits(_student(teacher)), _logits(teacher))


def test_a_student_has_the_layers_it_is_said_to_have() -> None:
    teacher = random_model(TEACHER)
    student = _student(teacher, encoder_layers=2, decoder_layers=1)
    shorter = random_model(TEACHER)
    shorter.encoder.layers = torch.nn.ModuleList([teacher.encoder.layers[0], teacher.encoder.layers[2]])
    shorter.decoder.layers = torch.nn.ModuleList([teacher.decoder.layers[0]])
    assert torch.equal(_logits(student), _logits(shorter))


@pytest.mark.parametrize("gated", [False, True])
def test_units_without_weight_are_the_first_to_go(gated: bool) -> None:
    teacher = random_model(TEACHER.changed(gated=gated))
    with torch.no_grad():
        for layer in (*teacher.encoder.layers, *teacher.decoder.layers):
            feed_forward = layer.get_submodule("feed_forward")
            feed_forward.get_parameter("down_proj.weight")[:, ::2] = 0
    student = _student(teacher, ffn_size=teacher.config.ffn_size // 2)
    assert torch.allclose(_logits(student), _logits(teacher), atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "possible"),
    [
        ({}, True),
        ({"encoder_layers": 6, "decoder_layers": 1, "ffn_size": 8}, True),
        ({"ffn_size": 25}, False),
        ({"d_model": 8}, False),
        ({"heads": 4}, False),
        ({"norm": "pre"}, False),
    ],
)
def test_only_layers_and_inner_sizes_may_differ(sizes: dict[str, Any], possible: bool) -> None:
    assert inherits(TEACHER.changed(**sizes), TEACHER) is possible
