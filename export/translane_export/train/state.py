"""What a run leaves on disk: its state, the weights to average, and what it says about itself; and the run's clock.

A killed run goes on exactly where it was, from one file that is replaced atomically.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from translane_export.core.checkpoint import load_tensors, save_tensors
from translane_export.core.errors import ExportError
from translane_export.train.corpus import Corpus
from translane_export.train.errors import ResumeError
from translane_export.train.evaluate import Evaluation
from translane_export.train.settings import TrainSettings

FREE_ON_RESUME = (
    *("max_epochs", "max_steps", "max_minutes", "cooldown_steps", "patience"),
    *("valid_every", "average"),
    *("threads", "train", "valid"),
)
"""Settings that a resumed run may change: when to stop, what to keep, how fast it goes and where things lie."""


@dataclass
class RunState:
    """Where a run is. Mutable: the trainer moves it on with each step."""

    step: int = 0
    """Updates done."""
    epoch: int = 0
    """The pass under way, counted from 0."""
    batch: int = 0
    """Batches of that pass already done."""
    seconds: float = 0.0
    """Wall time spent training, all parts of a resumed run together."""
    best_bleu: float = -1.0
    best_step: int = 0
    stale_validations: int = 0
    """Validations since the best one."""
    checkpoints: list[int] = field(default_factory=list)
    """Steps whose weights are on disk for averaging, oldest first."""
    validation_seconds: float = 0.0
    """The longest validation so far, with all that is saved at it."""


def save_state(
    path: Path, state: RunState, model: torch.nn.Module, optimizer: torch.optim.Optimizer, identity: dict[str, Any]
) -> None:
    """Write the run's state; `identity` is what a run that resumes it must share."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors.update({f"optimizer.{index}.{name}": value for name, value in moments.items()})
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    save_tensors(path, tensors, note=json.dumps({"state": asdict(state), "identity": identity}))


def load_state(
    path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, identity: dict[str, Any]
) -> RunState:
    """Put the model, the optimizer and the random generators back as they were and return where the run is.

    Raises:
        ResumeError: the file is unreadable, or its run differs from this one in more than when to stop.
    """
    try:
        stored = load_tensors(path)
        note = json.loads(stored.note)
        state = RunState(**note["state"])
        theirs = {name: value for name, value in note["identity"].items() if name not in FREE_ON_RESUME}
    except (ExportError, ValueError, KeyError, TypeError) as error:
        raise ResumeError(f"{path}: the run cannot be resumed ({error})") from error
    different = sorted(key for key in theirs.keys() | identity.keys() if theirs.get(key) != identity.get(key))
    if different:
        changes = "; ".join(f"{key} was {theirs.get(key)!r}, is {identity.get(key)!r}" for key in different)
        raise ResumeError(f"{path}: the run cannot be resumed with other settings ({changes})")

    try:
        _put_back(stored.tensors, model, optimizer)
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        problem = str(error).strip().splitlines()[-1].strip()
        raise ResumeError(
            f"{path}: the run cannot be resumed, as its weights are not this model's ({problem})"
        ) from None
    return state


def _put_back(tensors: Mapping[str, torch.Tensor], model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    groups: dict[str, dict[str, torch.Tensor]] = {"model": {}, "optimizer": {}, "random": {}}
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        groups[group][rest] = tensor
    model.load_state_dict(groups["model"])
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in groups["optimizer"].items():
        index, _, moment = name.partition(".")
        moments.setdefault(int(index), {})[moment] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    torch.set_rng_state(groups["random"]["cpu"])
    if torch.cuda.is_available() and "cuda" in groups["random"]:
        torch.cuda.set_rng_state(groups["random"]["cuda"])


class KeptWeights:
    """A folder with the weights after some steps, a file each."""

    def __init__(self, folder: Path) -> None:
        """Make the folder where it is missing. Raises OSError."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Keep the weights after `step` updates."""
        save_tensors(self._path(step), state_dict)

    def average(self, steps: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return the mean of the weights of `steps`; weights that are not there are left out, if others are."""
        # A kill between the deletion of weights and the next save leaves steps without a file.
        paths = [path for path in map(self._path, steps) if path.exists()]
        total = load_tensors(paths[0]).tensors
        for path in paths[1:]:
            for name, tensor in load_tensors(path).tensors.items():
                total[name] = total[name] + tensor
        return {name: tensor / len(paths) for name, tensor in total.items()}

    def keep(self, steps: Sequence[int]) -> None:
        """Delete the weights of all steps but `steps`."""
        kept = set(map(self._path, steps))
        for path in self._folder.glob("step-*.safetensors"):
            if path not in kept:
                path.unlink()

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:07d}.safetensors"


# Settings that the weights do not depend on.
_ELSEWHERE = {
    *("output", "resume", "log_every", "tensorboard"),
    *("evaluate", "test", "output_translations"),
}


@dataclass(frozen=True)
class RunDescription:
    """Describes one run. `initialised_from` names the checkpoint whose weights it starts from, if there is one."""

    settings: TrainSettings
    corpus: Corpus
    initialised_from: str = ""

    def identity(self) -> dict[str, Any]:
        """Return what a run that resumes this one must share with it."""
        values = {name: value for name, value in self._portable_settings().items() if name not in FREE_ON_RESUME}
        return {**values, "training data": self.corpus.train.digest, "validation data": self.corpus.valid.digest}

    def metadata(self, state: RunState, evaluation: Evaluation) -> dict[str, Any]:
        """Return the "training" part of a checkpoint's config.json."""
        settings = self.settings
        return {
            **({"initialised_from": self.initialised_from} if self.initialised_from else {}),
            "steps": state.step,
            "epochs": state.epoch,
            "minutes": round(state.seconds / 60, 1),
            "averaged_steps": state.checkpoints[-settings.average :],
            "seed": settings.seed,
            "valid_bleu": round(evaluation.bleu, 2),
            "valid_chrf": round(evaluation.chrf, 2),
            "bleu_signature": evaluation.bleu_signature,
            "chrf_signature": evaluation.chrf_signature,
            "data_licence": settings.data_licence,
            "training_pairs": len(self.corpus.train.pairs),
            "settings": self._portable_settings(),
        }

    def _portable_settings(self) -> dict[str, Any]:
        """Settings as JSON values; of paths the file name alone, as they differ from machine to machine."""
        values = self.settings.model_dump(exclude=_ELSEWHERE)
        return {name: value.name if isinstance(value, Path) else value for name, value in values.items()}


_MARGIN = 1.2  # work may take so much longer than it ever has


class TimeLimit:
    """A clock that remembers the longest time of each kind of work. A limit of 0 seconds is none."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.clock = clock
        self._started = clock()
        self._longest: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Wall time of the run so far, the earlier parts of a resumed run included."""
        return self.clock() - self._started

    def resume(self, seconds: float) -> None:
        """Count the `seconds` that earlier parts of the run took."""
        self._started -= seconds

    @contextmanager
    def measure(self, work: str) -> Iterator[None]:
        """Measure the work of the `with` block."""
        started = self.clock()
        yield
        self.expect(work, self.clock() - started)

    def expect(self, work: str, seconds: float) -> None:
        """Note that `work` takes `seconds`, where it has not taken longer before."""
        self._longest[work] = max(self._longest.get(work, 0.0), seconds)

    def longest(self, work: str) -> float:
        """The longest time [seconds] of this kind of work; 0 before the first one."""
        return self._longest.get(work, 0.0)

    def allows(self, *works: str) -> bool:
        """Whether one more of each of `works`, each as long as the longest so far, ends within the limit."""
        return not self.limit or self.seconds + _MARGIN * sum(map(self.longest, works)) < self.limit
