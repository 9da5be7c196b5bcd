"""The history of a run: one JSON object a line, in the order in which things happened.

::

    {"kind": "step", "step": 50, "epoch": 1, "seconds": 6.1, "loss": 5.9, "learning_rate": 5e-05, …}
    {"kind": "validation", "step": 500, "epoch": 2, "seconds": 61.0, "bleu": 12.3, "chrf": 30.1, …}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from translane_export.train.errors import TrainError
from translane_server.core.files import parse_json, read_regular, replaced_whole

HISTORY_FILE = "history.jsonl"


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """The updates since the last record, up to and including `step`.

    ``epoch`` counts from 1. ``seconds`` is the run's wall time. ``loss`` is the mean of all target tokens [nats].
    ``learning_rate`` is that of the last update. ``tokens_per_second`` counts target tokens,
    without the time of validations.
    """

    step: int
    epoch: int
    seconds: float
    loss: float
    learning_rate: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class ValidationRecord:
    """A validation after `step` updates: scores from 0 to 100, and the best BLEU so far with its step."""

    step: int
    epoch: int
    seconds: float
    bleu: float
    chrf: float
    best_bleu: float
    best_step: int


Record = StepRecord | ValidationRecord

_KINDS: dict[str, Callable[..., Record]] = {"step": StepRecord, "validation": ValidationRecord}
_NAMES: dict[type[Record], str] = {StepRecord: "step", ValidationRecord: "validation"}


class History:
    """Appends records to a history file. Each record is in the file as soon as it is added."""

    def __init__(self, path: Path, *, last_step: int = 0) -> None:
        """Open the file at `path`, and cut off what it says about steps after `last_step`.

        A run that was killed has written more than it can resume from.

        Raises:
            TrainError: the file is no history.
        """
        self.records = [record for record in read_history(path) if record.step <= last_step] if path.exists() else []
        with replaced_whole(path) as new:
            new.write_text("".join(map(_line, self.records)), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def add(self, record: Record) -> None:
        """Append a record."""
        self.records.append(record)
        self._file.write(_line(record))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_history(path: Path) -> list[Record]:
    """Return the records of a history file. A last line that a kill has cut short is left out.

    Raises:
        TrainError: the file cannot be read, or another line is no record; the message names the line.
    """
    try:
        lines = read_regular(path).split(b"\n")
    except OSError as error:
        raise TrainError(f"{path}: cannot be read ({error.strerror})") from None
    return list(_records(path, lines[:-1]))  # a whole line ends with \n: nothing, or half a line, is after the last


def _records(path: Path, lines: list[bytes]) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        try:
            values = parse_json(line)
            kind = _KINDS[values.pop("kind")]
            yield kind(**{name: _finite(value) for name, value in values.items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TrainError(f"{path}:{number}: not a record of a training run") from None


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(value)
    return value


def _line(record: Record) -> str:
    return json.dumps({"kind": _NAMES[type(record)], **asdict(record)}, allow_nan=False) + "\n"
