"""What a run tells while it goes on: a bar or lines on the terminal, its history, and event files of TensorBoard.

The history has one JSON object a line, in the order in which things happened::

    {"kind": "step", "step": 50, "epoch": 1, "seconds": 6.1, "loss": 5.9, "learning_rate": 5e-05, …}
    {"kind": "validation", "step": 500, "epoch": 2, "seconds": 61.0, "bleu": 12.3, "chrf": 30.1, …}

A step record is about the updates since the last record, up to and including ``step``. ``epoch`` counts from 1, and
``seconds`` is the run's wall time. ``loss`` is the mean of all target tokens [nats], ``learning_rate`` is the rate of
the last update, and ``tokens_per_second`` counts target tokens, without the time of validations. A validation record
has scores from 0 to 100, and the best BLEU so far with its step.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from translane.progress import Progress
from translane_export.train.errors import TrainError
from translane_export.train.evaluate import Evaluation
from translane_export.train.settings import TrainSettings
from translane_export.train.state import RunState, TimeLimit
from translane_export.train.update import Update
from translane_server.core.files import parse_json, read_regular, replaced_whole

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

HISTORY_FILE, EVENTS_FOLDER = "history.jsonl", "tensorboard"

Record = dict[str, Any]
# The numbers that a resumed run needs of each kind of record.
_NEEDED = {"step": ("step",), "validation": ("step", "best_bleu", "best_step")}


class _Window:
    """Updates that are told together, from `started` on [seconds]."""

    def __init__(self, started: float) -> None:
        self.started, self.loss, self.tokens, self.learning_rate = started, 0.0, 0, 0.0

    def add(self, update: Update) -> None:
        self.loss += update.loss * update.target_tokens
        self.tokens += update.target_tokens
        self.learning_rate = update.learning_rate

    def rate(self, now: float) -> float:
        """Target tokens per second."""
        return self.tokens / max(now - self.started, 1e-9)


class Log:
    """Tells what happens to the `state` of a run; the trainer moves the state on.

    A step record is about the updates since the last one. One is due every `--log-every` steps and before a validation,
    where a run can resume: so a resumed run continues the history as if it had never been interrupted.

    Raises TrainError when the run's history cannot be read.
    """

    def __init__(self, settings: TrainSettings, output: Path, state: RunState, limit: TimeLimit) -> None:
        self._settings, self._state, self._limit = settings, state, limit
        # A run that was killed has written more than it can resume from.
        path = output / HISTORY_FILE
        kept = [record for record in read_history(path) if record["step"] <= state.step] if path.exists() else []
        self._last = kept[-1] if kept else None
        with replaced_whole(path) as new:
            new.write_text("".join(map(_line, kept)), encoding="utf-8")
        self._history = path.open("a", encoding="utf-8", buffering=1)
        self._events: SummaryWriter | None = None
        if settings.tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # late: it is an extra

            # TensorBoard leaves out what older files say from the step `purge_step` on.
            self._events = SummaryWriter(str(output / EVENTS_FOLDER), purge_step=state.step + 1)
        self._max_steps = settings.max_steps
        self._first_step, self._first_seconds = state.step, limit.seconds
        self._progress = Progress("steps", done=state.step, stream=sys.stderr, say=self._say)
        self.begin_window()

    def last_validation(self) -> Record | None:
        """Return the history's validation at the state's step, if there is one."""
        last = self._last
        return last if last and (last["kind"], last["step"]) == ("validation", self._state.step) else None

    def expect(self, steps: int) -> None:
        """Say after how many updates the epochs asked for will be over."""
        self._max_steps = min(self._max_steps, steps) if self._max_steps else steps

    def update(self, update: Update) -> None:
        """Tell of an update, which the state counts already."""
        self._recorded.add(update)
        window = self._recorded
        rate = window.rate(self._limit.clock())
        self._progress.total = self._last_step()
        self._progress.note = f", loss {window.loss / window.tokens:.3f}, {rate:,.0f} tokens/s"
        self._progress.add(1)
        if self._state.step % self._settings.log_every == 0:
            self.end_window()

    def end_window(self) -> None:
        """Record the updates since the last record, where there are any."""
        window = self._recorded
        if window.tokens:
            self._add(
                "step",
                loss=window.loss / window.tokens,
                learning_rate=window.learning_rate,
                tokens_per_second=round(window.rate(self._limit.clock()), 1),
            )
        self.begin_window()

    def begin_window(self) -> None:
        """Begin to time updates anew."""
        self._recorded = _Window(self._limit.clock())

    def validation(self, evaluation: Evaluation) -> None:
        """Tell of a validation; the state knows the best one already."""
        state = self._state
        best = {"best_bleu": state.best_bleu, "best_step": state.best_step}
        self._add("validation", bleu=evaluation.bleu, chrf=evaluation.chrf, **best)
        self._progress.close(erase=True)
        self._say(
            f"step {state.step:,}, epoch {state.epoch + 1}, {state.seconds / 60:.1f} min: "
            f"valid BLEU {evaluation.bleu:.2f}, chrF {evaluation.chrf:.2f}"
            f" (best {state.best_bleu:.2f} at step {state.best_step:,})"
        )

    def close(self) -> None:
        """Close the files, and leave the last state of the bar on the screen."""
        self._progress.close()
        self._history.close()
        if self._events:
            self._events.close()

    def _add(self, kind: str, **values: float) -> None:
        step, seconds = self._state.step, round(self._limit.seconds, 3)
        self._last = {"kind": kind, "step": step, "epoch": self._state.epoch + 1, "seconds": seconds, **values}
        self._history.write(_line(self._last))
        if self._events:
            group = "train" if kind == "step" else kind
            for name, value in values.items():
                if not name.startswith("best_"):
                    self._events.add_scalar(f"{group}/{name}", value, step)
            self._events.flush()

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _last_step(self) -> int | None:
        """Return the step at which the nearest limit will be reached, as fast as steps have been."""
        step, ends = self._state.step, [self._max_steps] if self._max_steps else []
        if self._limit.limit:
            spent = max(self._limit.seconds - self._first_seconds, 1e-9)
            ends.append(step + round((self._limit.limit - self._limit.seconds) * (step - self._first_step) / spent))
        return min(ends, default=None)


def read_history(path: Path) -> list[Record]:
    """Return the records of a history file. A last line that a kill has cut short is left out.

    Raises:
        TrainError: the file cannot be read, or another line is no record; the message names the line.
    """
    try:
        lines = read_regular(path).split(b"\n")
    except OSError as error:
        raise TrainError(f"{path}: cannot be read ({error.strerror})") from None
    records: list[Record] = []
    for number, line in enumerate(lines[:-1], start=1):  # after a whole line there is nothing, or half a line
        try:
            record = parse_json(line)
            if not all(math.isfinite(record[name]) for name in _NEEDED[record["kind"]]):
                raise ValueError
            records.append(record)
        except (ValueError, TypeError, KeyError):
            raise TrainError(f"{path}:{number}: not a record of a training run") from None
    return records


def _line(record: Record) -> str:
    return json.dumps(record) + "\n"
