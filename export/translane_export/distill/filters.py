"""Which of the teacher's translations a student learns from."""

from __future__ import annotations

from collections import Counter

from translane_export.distill.journal import Output
from translane_server.core.suspect_pairs import RATIO, suspicion

LONG = "too long"


class Filters:
    """Leaves out pairs that would teach a student mistakes, and counts them by reason.

    Args:
        max_length: longest side in pieces.
        max_ratio: how many times as many pieces one side may have as the other. The end of the sentence counts as a
            piece of each side.
    """

    def __init__(self, max_length: int, max_ratio: float) -> None:
        self._max_length, self._max_ratio = max_length, max_ratio
        self.left_out: Counter[str] = Counter()

    def keeps(self, source: str, source_pieces: int, output: Output) -> bool:
        """Whether the pair stays. `source_pieces` has the end of the sentence; the output's number has not."""
        reason = self._reason(source, source_pieces, output)
        if reason:
            self.left_out[reason] += 1
        return not reason

    def _reason(self, source: str, source_pieces: int, output: Output) -> str:
        sizes = (source_pieces, output.pieces + 1)
        found = suspicion(source, output.text, *sizes, self._max_ratio)
        is_long = max(sizes) > self._max_length + 1
        return LONG if is_long and found in ("", RATIO) else found
