"""A run ends within its time, with clocks that are made up; and beams of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from helpers import reference_decoding
from helpers.bundles import SMALL_SIZES, SOURCES, TARGETS, random_checkpoint, random_model
from helpers.commands import train as main
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.greedy import greedy_decode
from translane_export.train import trainer
from translane_export.train.beams import beam_search
from translane_export.train.corpus import build_corpus, read_texts
from translane_export.train.errors import TrainError
from translane_export.train.evaluate import evaluate_model
from translane_export.train.log import ValidationRecord, read_history
from translane_export.train.settings import ENV_PREFIX, TrainSettings
from translane_export.train.state import save_state
from translane_export.train.time_limit import TimeLimit
from translane_export.train.trainer import Outcome, Trainer
from translane_export.train.update import Updater
from translane_server.core.arrays import FloatArray
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import TargetVocabulary
from translane_server.settings.loader import load_settings

pytestmark = pytest.mark.slow


@dataclass
class Clock:
    """Tells a time that passes when something is done."""

    now: float = 50.0

    def __call__(self) -> float:
        return self.now

    def slow(self, function: Callable[..., Any], seconds: Callable[[], float]) -> Callable[..., Any]:
        """Return the function, which now takes `seconds`."""

        def taking_time(*arguments: Any, **keywords: Any) -> Any:
            self.now += seconds()
            return function(*arguments, **keywords)

        return taking_time


def test_what_fits_is_judged_by_the_longest_of_each_kind():
    clock = Clock()
    limit = TimeLimit(100.0, clock)
    for seconds in (10, 20, 5):
        with limit.measure("a validation"):
            clock.now += seconds
    assert (limit.seconds, limit.longest("a validation"), limit.longest("a step")) == (35, 20, 0)
    limit.expect("a step", 10)
    assert limit.allows("a validation", "a step")  # 35 + 1.2 * 30 < 100
    clock.now += 30
    assert limit.allows("a validation")
    assert not limit.allows("a validation", "a step")
    clock.now += 37
    assert not limit.allows()


def test_a_resumed_run_has_used_time_already_and_no_limit_allows_all():
    clock = Clock()
    limit = TimeLimit(100.0, clock)
    limit.resume(95.0)
    clock.now += 4
    assert limit.seconds == 99
    assert limit.allows()
    assert limit.allows("a step")
    limit.expect("a step", 2)
    assert not limit.allows("a step")
    assert TimeLimit(0.0, clock).allows("a step")


@pytest.fixture
def timed_run(run_flags, tmp_path, monkeypatch):
    """Trains for some minutes with made-up durations: a second a step, others as given.

    Returns what came of the run, how long it took [seconds], and the steps of its validations.
    """

    def train(minutes: float, validation: Callable[[int], float], every: int) -> tuple[Outcome, float, list[int]]:
        clock = Clock()
        argv = run_flags(max_steps=0, patience=0, max_minutes=minutes, valid_every=every)
        settings = load_settings(TrainSettings, argv, {}, prog="translane train", env_prefix=ENV_PREFIX)
        assert settings.train
        assert settings.valid
        assert settings.output
        settings.output.mkdir(exist_ok=True)
        texts = read_texts(settings, settings.train, settings.valid)
        limit = TimeLimit(minutes * 60, clock)
        with monkeypatch.context() as patch:
            run = Trainer(settings, build_corpus(settings, *texts, settings.output), settings.output, limit=limit)
            patch.setattr(Updater, "update", clock.slow(Updater.update, lambda: 1.0))
            slow = clock.slow(evaluate_model, lambda: validation(run._state.step))
            patch.setattr(f"{trainer.__name__}.evaluate_model", slow)
            patch.setattr(f"{trainer.__name__}.save_state", clock.slow(save_state, lambda: 2.0))
            outcome = run.run()
        records = read_history(settings.output / "history.jsonl")
        validated = [record.step for record in records if isinstance(record, ValidationRecord)]
        return outcome, clock.now - 50, validated

    return train


@pytest.mark.parametrize(
    ("minutes", "validation", "every", "least"),
    [
        (2, lambda _step: 10.0, 25, 100),  # little of the time is left unused
        (1.5, lambda step: 5 + step / 10, 20, 60),  # validations that get slower still fit
        (1, lambda _step: 15.0, 1000, 30),  # before the first validation a rehearsal says how long it takes
    ],
)
def test_the_last_validation_ends_within_the_time(timed_run, minutes, validation, every, least):
    outcome, seconds, validated = timed_run(minutes, validation, every)
    assert outcome.reason == f"{minutes:g} minutes are over"
    assert validated[-1] == outcome.step > 0
    assert (len(validated) > 1) == (every < 1000)
    assert least < seconds <= minutes * 60


@pytest.mark.parametrize("minutes", [0.01, 0.5])
def test_a_time_without_room_for_one_validation_is_refused(timed_run, minutes):
    with pytest.raises(TrainError, match=f"--max-minutes {minutes:g}: the time is too short for one validation, which"):
        timed_run(minutes, lambda _step: 20.0, 10)


# Beams of a checkpoint are those of the definition, and greedy search is what it was.


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
def model():
    made = random_model(TransformerConfig(**{**SMALL_SIZES, "max_positions": 24}), seed=3)
    with torch.no_grad():
        made.output_projection.weight.mul_(3.0)  # so that some tokens are far more probable than others
        made.output_projection.bias[made.config.eos_id] += 1.0  # and sentences end
    return made


@pytest.mark.parametrize(("size", "penalty"), [(2, 1.0), (4, 0.6), (5, -0.5)])
def test_beams_are_those_of_the_definition(model, size, penalty):
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


def test_beams_may_want_more_candidates_than_there_are_tokens():
    few = random_model(TransformerConfig(**{**SMALL_SIZES, "target_vocab_size": 7, "max_positions": 24}), seed=3)
    (found,) = beam_search(few, [[5, 6]], size=16)
    options = DecodingOptions(14, beam_size=16, length_penalty=1.0)
    best = reference_decoding.beam_search(Reference(few), [5, 6, few.config.eos_id], options)[0]
    assert tuple(found) == best.token_ids


def test_one_beam_is_greedy_and_nothing_has_no_translation(model):
    sources = [[5, 6, 7], [9]]
    assert beam_search(model, sources, size=1) == greedy_decode(model, sources)
    assert beam_search(model, [], size=4) == []


def test_a_checkpoint_is_scored_with_beams(tmp_path, capfd):
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
