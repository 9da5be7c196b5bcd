"""What a run tells while it goes on: progress, history and event files."""

from __future__ import annotations

from pathlib import Path

from translane_export.train.evaluate import Evaluation
from translane_export.train.extras import require
from translane_export.train.history import HISTORY_FILE, History, Record, StepRecord, ValidationRecord
from translane_export.train.progress import Progress
from translane_export.train.settings import TrainSettings
from translane_export.train.state import RunState
from translane_export.train.time_limit import TimeLimit
from translane_export.train.update import Update


def check_extras(settings: TrainSettings) -> None:
    """Raise SettingsError where a package is missing that the settings ask for."""
    if settings.tensorboard:
        require("tensorboard", extra="tensorboard", flag="--tensorboard")


class Report:
    """Tells what happens to the `state` of a run; the trainer moves the state on.

    A step record is about the updates since the last one. One is due every `--log-every` steps and before a validation,
    where a run can resume: so a resumed run continues the history as if it had never been interrupted.

    Raises TrainError when the run's history cannot be read.
    """

    def __init__(self, settings: TrainSettings, output: Path, state: RunState, limit: TimeLimit) -> None:
        self._settings, self._state, self._limit = settings, state, limit
        self._history = History(output / HISTORY_FILE, last_step=state.step)
        self._events = None
        if settings.tensorboard:  # imported late: it is an extra
            from translane_export.train.event_files import EVENTS_FOLDER, EventFiles

            self._events = EventFiles(output / EVENTS_FOLDER, last_step=state.step)
        self.progress = Progress(
            max_steps=settings.max_steps,
            max_seconds=settings.max_minutes * 60,
            done_steps=state.step,
            done_seconds=limit.seconds,
        )
        self.begin_window()

    def last_validation(self) -> ValidationRecord | None:
        """Return the history's validation at the state's step, if there is one."""
        last = self._history.records[-1] if self._history.records else None
        return last if isinstance(last, ValidationRecord) and last.step == self._state.step else None

    def update(self, update: Update) -> None:
        """Tell of an update, which the state counts already."""
        self.progress.update(update.loss, update.target_tokens)
        self._window_loss += update.loss * update.target_tokens
        self._window_tokens += update.target_tokens
        self._learning_rate = update.learning_rate
        if self._state.step % self._settings.log_every == 0:
            self.end_window()

    def end_window(self) -> None:
        """Record the updates since the last record, where there are any."""
        if self._window_tokens:
            seconds = max(self._limit.clock() - self._window_started, 1e-9)
            self._add(
                StepRecord(
                    step=self._state.step,
                    epoch=self._state.epoch + 1,
                    seconds=round(self._limit.seconds, 3),
                    loss=self._window_loss / self._window_tokens,
                    learning_rate=self._learning_rate,
                    tokens_per_second=round(self._window_tokens / seconds, 1),
                )
            )
        self.begin_window()

    def validation(self, evaluation: Evaluation) -> None:
        """Tell of a validation; the state knows the best one already."""
        state = self._state
        self._add(
            ValidationRecord(
                step=state.step,
                epoch=state.epoch + 1,
                seconds=round(self._limit.seconds, 3),
                bleu=evaluation.bleu,
                chrf=evaluation.chrf,
                best_bleu=state.best_bleu,
                best_step=state.best_step,
            )
        )
        self.progress.say(
            f"step {state.step:,}, epoch {state.epoch + 1}, {state.seconds / 60:.1f} min: "
            f"valid BLEU {evaluation.bleu:.2f}, chrF {evaluation.chrf:.2f}"
            f" (best {state.best_bleu:.2f} at step {state.best_step:,})"
        )

    def close(self) -> None:
        """Close the files, and leave the last state of the progress bar on the screen."""
        self.progress.close()
        self._history.close()
        if self._events:
            self._events.close()

    def _add(self, record: Record) -> None:
        self._history.add(record)
        if self._events:
            self._events.add(record)

    def begin_window(self) -> None:
        """Begin to time updates anew."""
        self._window_started = self._limit.clock()
        self._window_loss, self._window_tokens = 0.0, 0
        self._learning_rate = 0.0
