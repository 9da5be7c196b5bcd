"""Engines that take turns on the same load, in many short rounds, each at the best of its settings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.engines.decoder_process import Decoded, DecoderProcess
from benchmarks.engines.settings import Setting
from benchmarks.models.workload import Load

LONG_TRIAL = 2.0  # seconds; shorter ones run twice, and the better run counts
PATIENCE = 4.0  # times the best trial so far; OpenMP's threads can spin for ages where there are more than processors
LEAST_PATIENCE = 5.0  # seconds
NEAR = 1.25  # settings whose trial took up to so many times the best one's time go on into the rounds

Opening = Callable[[Setting], "Mapping[str, Any] | None"]
"""Further arguments of a setting's decoder; None where the setting does not take part."""

_Contender = TypeVar("_Contender")


@dataclass
class Outcome:
    """What an engine reached: the medians of its best setting, in target tokens/s and per second of processor time."""

    setting: str
    rate: float
    cpu_rate: float
    tokens: int
    sentences: int
    trials: dict[str, float]  # tokens/s of every setting on the short load, except settings that were given up
    rounds: dict[str, list[dict[str, float]]]  # of the settings that went on


class Contest:
    """Runs engines in their settings, each in a process of its own; a `with` statement ends these."""

    def __init__(self, engines: Mapping[str, Sequence[Setting]]) -> None:
        self._engines = engines
        self._processes: dict[Setting, DecoderProcess] = {}

    def __enter__(self) -> Contest:
        for settings in self._engines.values():
            for setting in settings:
                self._processes[setting] = DecoderProcess(setting.decoder, setting.environment)
        return self

    def __exit__(self, *_exception: object) -> None:
        for process in self._processes.values():
            process.__exit__()

    def hold(self, opening: Opening, trial: Load, load: Callable[[float], Load], rounds: int) -> dict[str, Outcome]:
        """Choose settings on a short load, `trial`, and let those that are near the best of their engine take turns.

        `load` makes the load of the rounds, given how many sentences/s the fastest setting decoded.
        """
        trials: dict[str, dict[str, float]] = {}
        contenders: dict[Setting, list[Decoded]] = {}
        fastest = 0.0
        for engine, settings in self._engines.items():
            tried = self._try_all(settings, opening, trial)
            if not tried:
                continue
            seconds = {setting: decoded.seconds for setting, decoded in tried.items()}
            near = near_the_best(seconds)
            for setting in settings:
                if setting in near:
                    contenders[setting] = []
                elif setting in tried:
                    self._processes[setting].close()
            trials[engine] = {setting.name: decoded.tokens / decoded.seconds for setting, decoded in tried.items()}
            fastest = max(fastest, len(trial.sources) / min(seconds.values()))
        longer = load(fastest)
        for setting in contenders:
            self._processes[setting].load(longer)
        for order in turns(list(contenders), rounds):
            for setting in order:
                contenders[setting].append(self._processes[setting].decode())
        for setting in contenders:
            self._processes[setting].close()
        return {
            engine: outcome(
                {setting.name: runs for setting, runs in contenders.items() if setting.engine == engine},
                trials[engine],
                len(longer.sources),
            )
            for engine in trials
        }

    def _try_all(self, settings: Sequence[Setting], opening: Opening, load: Load) -> dict[Setting, Decoded]:
        """The runs of all settings that take part, except settings that take ages."""
        tried: dict[Setting, Decoded] = {}
        for setting in settings:
            if (arguments := opening(setting)) is None:
                continue
            least = min((decoded.seconds for decoded in tried.values()), default=None)
            patience = None if least is None else max(LEAST_PATIENCE, PATIENCE * least)
            process = self._processes[setting]
            process.open(**setting.options, **arguments)
            process.load(load)
            try:
                decoded = process.decode(patience=patience)
            except TimeoutError:
                process.kill()
                self._processes[setting] = DecoderProcess(setting.decoder, setting.environment)
                continue
            if decoded.seconds < LONG_TRIAL:
                decoded = min(decoded, process.decode(), key=lambda run: run.seconds)
            tried[setting] = decoded
        return tried


def near_the_best(seconds: Mapping[Setting, float]) -> set[Setting]:
    """The settings whose time is near the least."""
    least = min(seconds.values())
    return {setting for setting, time in seconds.items() if time <= NEAR * least}


def turns(contenders: Sequence[_Contender], rounds: int) -> list[Sequence[_Contender]]:
    """The order of each round, every other round backwards, so that no contender always follows the same one."""
    return [contenders if number % 2 == 0 else contenders[::-1] for number in range(rounds)]


def outcome(runs: Mapping[str, Sequence[Decoded]], trials: dict[str, float], sentences: int) -> Outcome:
    """What the setting of the best median reached; the rounds of all are kept."""
    rates = {name: statistics.median(run.tokens / run.seconds for run in found) for name, found in runs.items()}
    best = max(rates, key=lambda name: rates[name])
    return Outcome(
        setting=best,
        rate=rates[best],
        cpu_rate=statistics.median(run.tokens / run.cpu_seconds for run in runs[best]),
        tokens=runs[best][0].tokens,
        sentences=sentences,
        trials=trials,
        rounds={
            name: [{"seconds": run.seconds, "cpu_seconds": run.cpu_seconds, "tokens": run.tokens} for run in found]
            for name, found in runs.items()
        },
    )
