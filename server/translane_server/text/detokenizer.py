"""The text of a translation while its tokens still come: what is certain of it, character by character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from translane_server.text.graphemes import is_boundary

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns what the tokens of one translation add to its text into deltas, which concatenate to the whole of it.

    A delta is sent once the token after it is known, because that may still change it: complete a character of which
    only some bytes are there (byte fallback), add an accent, or make the space at the end count. So a delta ends
    neither within a character that a reader sees as one (see `graphemes`) nor in white space, and mostly where a token
    does. `finish` sends the rest.

    A token is looked at once: a translation takes time in proportion to its length.
    """

    def __init__(self) -> None:
        self._decoder = _Utf8Decoder("replace")
        self._unsent = ""  # it begins where a character does
        self._sent = 0  # characters
        self._is_empty = True

    def push(self, surfaces: Sequence[bytes]) -> str:
        """What can be sent now; it may be nothing.

        Args:
            surfaces: what the next tokens add to the text, as UTF-8; see `TargetVocabulary.surfaces`.
        """
        limit = len(self._unsent)
        for surface in surfaces:
            if self._is_empty and surface:
                surface, self._is_empty = surface.removeprefix(b" "), False  # a text's first space is no part of it
            limit = len(self._unsent)
            self._unsent += self._decoder.decode(surface)
        end = _last_end(self._unsent, min(limit, len(self._unsent) - 1))
        delta, self._unsent = self._unsent[:end], self._unsent[end:]
        self._sent += end
        return delta

    def finish(self, text: str) -> str:
        """What is left to send of the whole translation `text`."""
        return text[self._sent :]


def _last_end(text: str, limit: int) -> int:
    """The last place up to `limit` where a character ends that is no white space; 0 where there is none."""
    while limit > 0 and (text[limit - 1].isspace() or not is_boundary(text, limit)):
        limit -= 1
    return max(limit, 0)
