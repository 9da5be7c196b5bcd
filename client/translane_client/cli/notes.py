"""What people should know of how their texts were treated: sentences that were cut, terms that were not applied."""

from __future__ import annotations

from typing import TextIO

from translane.results import TermOutcome, TermReport, Treatment
from translane_client.cli.printable import printable

_MOST = 10
"""Notes that are shown; of the rest, only the number is."""

_PROBLEMS = {
    TermOutcome.TOO_MANY: "the text has more terms than a sentence can keep",
    TermOutcome.MISSED: "the translation ended before it",
    TermOutcome.PRESERVED: "it occurs only in what is not translated",
}


class Notes:
    """Gathers notes, and shows them when the command ends: each on a line, at most ten, with the number of the rest."""

    def __init__(self) -> None:
        self._notes = dict[str, None]()
        self._more = 0

    def add(self, place: str, treatment: Treatment | None) -> None:
        """Takes what was done with the text at `place`."""
        if treatment is None:
            return
        if treatment.cut_sentences:
            cut = "1 sentence was" if treatment.cut_sentences == 1 else f"{treatment.cut_sentences} sentences were"
            self._add(f"{place}: {cut} too long, and cut in the middle")
        for term in treatment.terms:
            if term.outcome is TermOutcome.UNSPELLABLE:  # so it is in every text
                self._add(f"{_term(term)} was not applied: the model's vocabulary cannot spell the target")
            elif term.outcome in _PROBLEMS:
                self._add(f"{place}: {_term(term)} was not applied: {_PROBLEMS[term.outcome]}")

    def show(self, stream: TextIO) -> None:
        """Writes the notes."""
        for note in self._notes:
            print(f"translane: {printable(note)}", file=stream)
        if self._more:
            print(f"translane: and {self._more} more such notes; --json has them all", file=stream)

    def _add(self, note: str) -> None:
        if note in self._notes:
            return
        if len(self._notes) < _MOST:
            self._notes[note] = None
        else:
            self._more += 1


def _term(term: TermReport) -> str:
    where = f" of the glossary {term.glossary}" if term.glossary else ""
    return f"the term {term.source} → {term.target}{where}"
