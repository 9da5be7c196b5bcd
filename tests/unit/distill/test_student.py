"""The student, the text that it learns from, and the settings of both."""

from typing import Any

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from helpers.bundles import SMALL_SIZES, random_model
from helpers.refusals import refusal
from translane_export.distill.settings import ENV_PREFIX, DistillSettings
from translane_export.distill.student import inherited, inherits, spread
from translane_export.distill.text import LONG, closest, why_unfit
from translane_export.model import Transformer, TransformerConfig
from translane_export.train.evaluate import bleu_tokenizer
from translane_server.core.errors import SettingsError
from translane_server.core.quality import COPY, EMPTY, RATIO
from translane_server.settings.loader import load_settings

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
def test_layers_are_spread_from_the_first_to_the_last(theirs, ours, layers):
    assert spread(theirs, ours) == layers


def test_a_student_has_the_layers_it_is_said_to_have():
    teacher = random_model(TEACHER)
    student = _student(teacher, encoder_layers=2, decoder_layers=1)
    shorter = random_model(TEACHER)
    shorter.encoder.layers = torch.nn.ModuleList([teacher.encoder.layers[0], teacher.encoder.layers[2]])
    shorter.decoder.layers = torch.nn.ModuleList([teacher.decoder.layers[0]])
    assert torch.equal(_logits(student), _logits(shorter))


@pytest.mark.parametrize("gated", [False, True])
def test_units_without_weight_are_the_first_to_go(gated):
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
def test_only_layers_and_inner_sizes_may_differ(sizes, possible):
    assert inherits(TEACHER.changed(**sizes), TEACHER) is possible


ENGLISH = ["It is a dog.", "He has a cat.", "I have a cat.", "I have a cat ."]


@pytest.mark.parametrize(
    ("source", "source_pieces", "translation", "pieces", "reason"),
    [
        ("我有一只猫。", 6, "I have a cat.", 5, ""),
        ("我有一只猫。", 6, "", 0, EMPTY),
        ("Tom", 2, "Tom", 1, COPY),
        ("长", 11, "Long.", 10, ""),
        ("长", 12, "Long.", 10, LONG),
        ("长", 10, "Long.", 11, LONG),
        ("好", 2, "That is good.", 5, ""),
        ("好", 2, "That is good and well.", 6, RATIO),
        ("这本书很有意思", 7, "Yes", 1, RATIO),
    ],
)
def test_pairs_that_teach_mistakes_are_left_out(source, source_pieces, translation, pieces, reason):
    assert why_unfit(source, translation, source_pieces, pieces, 10, 3.0) == reason


@pytest.mark.parametrize(
    ("language", "texts", "reference", "chosen"),
    [
        ("en", ENGLISH, "I have a cat.", 2),
        ("en", ENGLISH, "He has a dog.", 1),
        ("en", ENGLISH, "Something else entirely", 0),  # the likeliest of equally close ones
        ("en", ENGLISH[1:2], "", 0),
        ("zh-Hans", ["我是狗", "我有一只猫。"], "我有一只小猫。", 1),  # by characters
    ],
)
def test_the_closest_translation_is_taken(language, texts, reference, chosen):
    bleu = BLEU(tokenize=bleu_tokenizer(language), effective_order=True)
    assert closest(bleu, texts, reference) == texts[chosen]


NEEDED = ["models/zh-en", "--train=a.tsv", "--output=out"]


def _load(argv: list[str], environ: dict[str, str] | None = None) -> DistillSettings:
    return load_settings(DistillSettings, argv, environ or {}, prog="translane distill", env_prefix=ENV_PREFIX)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (NEEDED[1:], "TEACHER is required"),
        (NEEDED[:2], "--output is required"),
        ([*NEEDED, "--nbest=5"], "--nbest: 5 translations need as many beams, and --beam-size is 4"),
        ([*NEEDED, "--max-ratio=inf"], "--max-ratio: input should be a finite number"),
        ([*NEEDED, "--valid=b.tsv"], "unknown argument --valid"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(argv, sentence):
    assert sentence in refusal(SettingsError, _load, argv)
