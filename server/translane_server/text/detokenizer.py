"""Turns the tokens of a translation into text while the translation is decoded."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from translane_server.text.graphemes import is_boundary

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns the surfaces of one translation's tokens into deltas, which concatenate to the translation's text.

    A delta is sent when the token after it is known, because the next token may still change the delta. The next token
    may complete a character of several bytes (byte fallback), add an accent, or show that a space is not the end of the
    text. So a delta ends neither within a character that readers see (see `graphemes`) nor in white space. It mostly
    ends where a token ends. `finish` sends the rest.

    Each token is read once, so the time for a translation is proportional to its length.
    """

    def __init__(self) -> None:
        self._decoder = _Utf8Decoder("replace")
        self._unsent = ""  # begins at the start of a character
        self._searched = 0  # no delta can end at this place of the unsent text, or before it
        self._sent = 0  # characters
        self._is_empty = True

    def push(self, surfaces: Sequence[bytes]) -> str:
        """Return the delta that can be sent now; it may be empty.

        Args:
            surfaces: what the next tokens add to the text, as UTF-8; see `TargetVocabulary.surfaces`.
        """
        limit = len(self._unsent)
        for surface in surfaces:
            if self._is_empty and surface:
                surface, self._is_empty = surface.removeprefix(b" "), False  # the text leaves out the first space
            limit = len(self._unsent)
            self._unsent += self._decoder.decode(surface)
        end = self._last_end(min(limit, len(self._unsent) - 1))
        delta, self._unsent = self._unsent[:end], self._unsent[end:]
        self._sent += end
        return delta

    def finish(self, text: str) -> str:
        """Return the unsent rest of the whole translation `text`."""
        return text[self._sent :]

    def _last_end(self, limit: int) -> int:
        """Return the last place up to `limit` where a character ends that is not white space; 0 if there is none.

        Whether a character ends at a place depends on the text up to there and on one character more. So the places
        that were searched once are not searched again.
        """
        text, place = self._unsent, limit
        while place > self._searched and (text[place - 1].isspace() or not is_boundary(text, place)):
            place -= 1
        found = place if place > self._searched else 0
        self._searched = 0 if found else max(limit, self._searched)
        return found
