"""Engines that take turns on the same load: each at the best of its settings, in many short rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decoder_process import Decoded, DecoderProcess
from workload import Load

LONG_TRIAL = 2.0  # seconds; shorter ones run twice, and the better run counts
PATIENCE = 4.0  # times the best trial so far; OpenMP's threads can spin for ages where there are more than processors
LEAST_PATIENCE = 5.0  # seconds
NEAR = 1.25  # settings whose trial took up to so many times the best one's time go on into the rounds

# How CTranslate2 is told which library multiplies its matrices, where its build has both. MKL comes second: on
# processors that are not Intel's it can take forty times as long, and a first trial has nothing to be given up for.
LIBRARIES = {
    "oneDNN": {"CT2_USE_MKL": "0"},
    "MKL": {"CT2_USE_MKL": "1"},
    "MKL packed": {"CT2_USE_MKL": "1", "CT2_PACKED_GEMM": "1"},
}


@dataclass(frozen=True, eq=False)
class Setting:
    """One way to run an engine.

    Attributes:
        engine: its name.
        name: of the setting.
        workers: how many decode at once.
        threads: of each.
        decoder: "module.Class" of what decodes.
        options: what its constructor takes for this.
        environment: of its process.
    """

    engine: str
    name: str
    workers: int
    threads: int
    decoder: str
    options: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)


Opening = Callable[[Setting], "Mapping[str, Any] | None"]


@dataclass
class Outcome:
    """What an engine reached: the medians of its best setting, in target tokens/s and per second of processor time."""

    setting: str
    rate: float
    cpu_rate: float
    tokens: int
    sentences: int
    trials: dict[str, float]  # tokens/s of every setting on the short load, but of those given up
    rounds: dict[str, list[dict[str, float]]]  # of the settings that went on


def splits(cores: int) -> list[tuple[int, int]]:
    """Workers × threads that use all cores, most workers first."""
    return [(workers, cores // workers) for workers in range(cores, 0, -1) if cores % workers == 0]


def settings_of_translane(cores: int) -> list[Setting]:
    return [
        Setting(
            "translane",
            f"{replicas} × {threads}",
            replicas,
            threads,
            "translane_decoder.TranslaneDecoder",
            {"replicas": replicas, "threads": threads},
        )
        for replicas, threads in splits(cores)
    ]


def settings_of_ctranslate2(cores: int) -> list[Setting]:
    return [
        Setting(
            "ctranslate2",
            f"{workers} × {threads} {library}",
            workers,
            threads,
            "ctranslate2_peer.CTranslate2Decoder",
            {"workers": workers, "threads": threads},
            environment,
        )
        for library, environment in LIBRARIES.items()
        for workers, threads in splits(cores)
    ]


def settings_of_hugging_face(cores: int) -> list[Setting]:
    decoder = "hugging_face_peer.HuggingFaceDecoder"
    return [Setting("hugging_face", f"1 × {cores}", 1, cores, decoder, {"threads": cores})]


def settings_on_cuda(cores: int) -> dict[str, list[Setting]]:
    """Of all engines: one batch at a time on the GPU, or for CTranslate2 two."""
    ours = [setting for setting in settings_of_translane(cores) if setting.workers == 1]
    decoder = "ctranslate2_peer.CTranslate2Decoder"
    return {
        "translane": ours,
        "ctranslate2": [
            Setting("ctranslate2", f"{workers} × 1", workers, 1, decoder, {"workers": workers, "threads": 1})
            for workers in (1, 2)
        ],
        "hugging_face": settings_of_hugging_face(cores),
    }


class Contest:
    """Runs engines in their settings, each in a process of its own; a `with` statement ends these.

    Args:
        engines: the settings of each.
        processor_time: count the seconds that workers compute, instead of those that pass: for machines that others
            use, too, and settings of one thread, which never spin.
    """

    def __init__(self, engines: Mapping[str, Sequence[Setting]], *, processor_time: bool = False) -> None:
        self._engines = engines
        self._processor_time = processor_time
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
        """Choose settings on a short load, and let those that are near the best of their engine take turns.

        Args:
            opening: further arguments of a setting's decoder; None where it does not take part.
            trial: the short load.
            load: the load of the rounds, given how many sentences/s the fastest setting decoded.
            rounds: how many.
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
                contenders[setting].append(self._decode(setting))
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
        """The runs of all settings that take part, but of those that take ages."""
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
                decoded = self._decode(setting, patience)
            except TimeoutError:
                process.kill()
                self._processes[setting] = DecoderProcess(setting.decoder, setting.environment)
                continue
            if decoded.seconds < LONG_TRIAL:
                decoded = min(decoded, self._decode(setting), key=lambda run: run.seconds)
            tried[setting] = decoded
        return tried

    def _decode(self, setting: Setting, patience: float | None = None) -> Decoded:
        decoded = self._processes[setting].decode(patience=patience)
        if self._processor_time:
            return replace(decoded, seconds=decoded.cpu_seconds / setting.workers)
        return decoded


def near_the_best(seconds: Mapping[Setting, float]) -> set[Setting]:
    """The settings whose time is near the least."""
    least = min(seconds.values())
    return {setting for setting, time in seconds.items() if time <= NEAR * least}


def turns(settings: Sequence[Setting], rounds: int) -> list[Sequence[Setting]]:
    """The order of each round, every other one backwards, so that none always follows the same one."""
    return [settings if number % 2 == 0 else settings[::-1] for number in range(rounds)]


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
