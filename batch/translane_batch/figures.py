"""How far a run is, and what became of a corpus."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from translane_client.cli.progress import clock_face

_SECONDS = 10.0  # between two lines


class Progress:
    """Counts what one step of a run has done, and says so in a line now and then.

    Of `total` sources, or what else it counts, `done` were done before. `note` is added to each line.
    """

    def __init__(
        self,
        what: str,
        log: Callable[[str], None],
        *,
        total: int | None = None,
        done: int = 0,
        note: str = "",
    ) -> None:
        self._what, self._log, self._total, self._before, self._note = what, log, total, done, note
        self._started = self._logged = time.monotonic()
        self._added = 0

    @property
    def seconds(self) -> float:
        """Time since the step began."""
        return time.monotonic() - self._started

    def add(self, number: int) -> None:
        """Count what is done, and write a line if the last one is long ago."""
        self._added += number
        now = time.monotonic()
        if now - self._logged < _SECONDS:
            return
        self._logged = now
        rate = self._added / (now - self._started)
        done = self._before + self._added
        of = "" if self._total is None else f" of {self._total:,}"
        left = f", {clock_face((self._total - done) / rate)} left" if self._total is not None and rate else ""
        self._log(f"{done:,}{of} {self._what}, {rate:,.0f} a second{left}{self._note}")


@dataclass
class Summary:
    """What became of a corpus.

    Attributes:
        files: files of the corpus.
        records: its records, each of which is in an output.
        blank: records without a text.
        sources: different texts, each of which was translated once.
        duplicates: records whose text an earlier record has.
        translated: records with a translation that is not left out.
        left_out: reason → records that are left out for it.
        sources_translated: sources that were translated since the command was started last.
        reading_seconds, translating_seconds, writing_seconds: time of the three steps since then.
    """

    files: int = 0
    records: int = 0
    blank: int = 0
    sources: int = 0
    duplicates: int = 0
    translated: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    sources_translated: int = 0
    reading_seconds: float = 0.0
    translating_seconds: float = 0.0
    writing_seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """The figures for people."""
        texts = self.records - self.blank
        share = self.duplicates / texts if texts else 0.0
        files = f"{self.files:,} file{'s' * (self.files != 1)}"
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.left_out.items()))
        left_out = f"{sum(self.left_out.values()):,} left out" + (f" ({reasons})" if reasons else "")
        return (
            f"{self.records:,} records in {files}: {self.translated:,} translated, {self.blank:,} blank, {left_out};"
            f" {self.sources:,} different sources, {share:.1%} duplicates"
        )
