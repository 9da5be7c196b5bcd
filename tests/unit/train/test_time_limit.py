"""A run ends within its time, with clocks that are made up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from translane_export.train import trainer
from translane_export.train.corpus import build_corpus, read_texts
from translane_export.train.evaluate import evaluate_model
from translane_export.train.log import read_history
from translane_export.train.settings import ENV_PREFIX, TrainSettings
from translane_export.train.state import TimeLimit, save_state
from translane_export.train.trainer import Trainer
from translane_export.train.update import Updater
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


@pytest.mark.parametrize(
    ("minutes", "validation", "every", "least"),
    [
        (2, lambda _step: 10.0, 25, 100),  # little of the time is left unused
        (1.5, lambda step: 5 + step / 10, 20, 60),  # validations that get slower still fit
    ],
)
def test_the_last_validation_ends_within_the_time(run_flags, monkeypatch, minutes, validation, every, least):
    """Durations are made up: a second a step, two for what is saved, and those of validations."""
    clock = Clock()
    argv = run_flags(max_steps=0, patience=0, max_minutes=minutes, valid_every=every)
    settings = load_settings(TrainSettings, argv, {}, prog="translane train", env_prefix=ENV_PREFIX)
    assert settings.train
    assert settings.valid
    assert settings.output
    settings.output.mkdir()
    texts = read_texts(settings, settings.train, settings.valid)
    limit = TimeLimit(minutes * 60, clock)
    run = Trainer(settings, build_corpus(settings, *texts, settings.output), settings.output, limit=limit)
    monkeypatch.setattr(Updater, "update", clock.slow(Updater.update, lambda: 1.0))
    slow = clock.slow(evaluate_model, lambda: validation(run._state.step))
    monkeypatch.setattr(f"{trainer.__name__}.evaluate_model", slow)
    monkeypatch.setattr(f"{trainer.__name__}.save_state", clock.slow(save_state, lambda: 2.0))
    outcome, seconds = run.run(), clock.now - 50
    records = read_history(settings.output / "history.jsonl")
    validated = [record["step"] for record in records if record["kind"] == "validation"]
    assert outcome.reason == f"{minutes:g} minutes are over"
    assert validated[-1] == outcome.step > 0
    assert len(validated) > 1
    assert least < seconds <= minutes * 60
