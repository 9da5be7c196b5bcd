"""Beams of a checkpoint are those of the definition, and greedy search is what it was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from helpers import reference_decoding
from helpers.bundles import SMALL_SIZES, SOURCES, TARGETS, random_checkpoint, random_model
from helpers.commands import train as main
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.greedy import greedy_decode
from translane_export.train.beams import beam_search
from translane_server.core.arrays import FloatArray
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import TargetVocabulary

pytestmark = pytest.mark.slow


class Reference:
    """The model as the definition of decoding takes it: logits of one prefix of one sentence."""

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self.vocabulary = TargetVocabulary(model.config.start_id, model.config.eos_id)

    def logits(self, source: Sequence[int], fed: Sequence[int]) -> FloatArray:
        with torch.inference_mode():
            lengths = torch.tensor([len(source)])
            memory = self._model.encode(torch.tensor([list(source)]), lengths)
            return self._model.decode(torch.tensor([list(fed)]), memory, lengths)[0, -1].numpy()


@pytest.fixture(scope="module")
def model() -> Transformer:
    made = random_model(TransformerConfig(**{**SMALL_SIZES, "max_positions": 24}), seed=3)
    with torch.no_grad():
        made.output_projection.weight.mul_(3.0)  # so that some tokens are far more probable than others
        made.output_projection.bias[made.config.eos_id] += 1.0  # and sentences end
    return made


@pytest.mark.parametrize(("size", "penalty"), [(2, 1.0), (4, 0.6), (5, -0.5)])
def test_beams_are_those_of_the_definition(model: Transformer, size: int, penalty: float) -> None:
    draw = torch.Generator().manual_seed(1)
    sources = [torch.randint(4, 30, (length,), generator=draw).tolist() for length in (1, 3, 2, 6, 4, 1, 5, 0)]
    found = beam_search(model, sources, size=size, length_penalty=penalty)
    reference = Reference(model)
    for source, tokens in zip(sources, found, strict=True):
        options = DecodingOptions(min(24, 2 * len(source) + 10), beam_size=size, length_penalty=penalty)
        best = reference_decoding.beam_search(reference, [*source, model.config.eos_id], options)[0]
        assert tuple(tokens) == best.token_ids
    assert len({len(tokens) for tokens in found}) > 1
    assert found != greedy_decode(model, sources)


def test_beams_may_want_more_candidates_than_there_are_tokens() -> None:
    few = random_model(TransformerConfig(**{**SMALL_SIZES, "target_vocab_size": 7, "max_positions": 24}), seed=3)
    (found,) = beam_search(few, [[5, 6]], size=16)
    options = DecodingOptions(14, beam_size=16, length_penalty=1.0)
    best = reference_decoding.beam_search(Reference(few), [5, 6, few.config.eos_id], options)[0]
    assert tuple(found) == best.token_ids


def test_one_beam_is_greedy_and_nothing_has_no_translation(model: Transformer) -> None:
    sources = [[5, 6, 7], [9]]
    assert beam_search(model, sources, size=1) == greedy_decode(model, sources)
    assert beam_search(model, [], size=4) == []


def test_a_checkpoint_is_scored_with_beams(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoint = random_checkpoint(tmp_path / "checkpoint", eos_bias=1.0)
    pairs = [f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True)]
    (tmp_path / "test.tsv").write_text("".join(pairs), encoding="utf-8")
    flags = [f"--evaluate={checkpoint}", f"--test={tmp_path / 'test.tsv'}", "--threads=1"]
    outputs = {}
    for size in (1, 4):
        output = tmp_path / f"{size}.txt"
        assert main([*flags, f"--beam-size={size}", f"--output-translations={output}"]) == 0
        assert re.match(r"BLEU \d+\.\d\d  nrefs:1", capfd.readouterr().out)
        outputs[size] = output.read_text(encoding="utf-8").split("\n")
        assert len(outputs[size]) == len(SOURCES) + 1
    assert outputs[1] != outputs[4]

    assert main([*flags, f"--output-translations={tmp_path}"]) == 1
    assert capfd.readouterr().err.endswith("cannot be written (Is a directory)\n")
