"""The text of a translation while its tokens still come: what is certain of it, character by character."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import commonprefix  # of any strings, in spite of its home

from translane_server.request import AlignedToken
from translane_server.text.graphemes import is_boundary

# The text of a translation's first tokens; their alignment is there where unknown tokens are replaced by it.
DecodePrefix = Callable[[Sequence[int], Sequence[AlignedToken]], str]

# Stands for bytes that are no character yet.
_REPLACEMENT = "\ufffd"


class TextStream:
    """Turns the growing tokens of one translation into deltas of its text, which concatenate to the whole of it.

    A delta is sent once the token after it is known, because that may still change it: complete a character of which
    only some bytes are there (byte fallback), add an accent, or make the space at the end count. So a delta ends
    neither within a character that a reader sees as one (see `graphemes`) nor in white space, and mostly where a token
    does. `finish` sends the rest.

    Args:
        decode: the tokenizer's. What more tokens may change of its text is white space and the last character; should
            it take back more than that after it was sent, no delta follows.
    """

    def __init__(self, decode: DecodePrefix) -> None:
        self._decode = decode
        self._sent = ""

    def push(self, token_ids: Sequence[int], alignment: Sequence[AlignedToken] = ()) -> str:
        """What can be sent, of all tokens that are certain by now; it may be nothing.

        Args:
            token_ids: T tokens, which start with those of the calls before.
            alignment: of each of them, or none.
        """
        text = self._decode(token_ids, alignment).rstrip(_REPLACEMENT)
        before = self._decode(token_ids[:-1], alignment[:-1])
        end = _last_end(text, min(len(commonprefix([before, text])), len(text) - 1))  # noqa: RUF071 characters are meant
        return self._advance(text[:end]) if end > len(self._sent) else ""

    def finish(self, text: str) -> str:
        """What is left to send of the whole translation `text`."""
        return self._advance(text)

    def _advance(self, text: str) -> str:
        if not text.startswith(self._sent):
            return ""
        delta = text[len(self._sent) :]
        self._sent = text
        return delta


def _last_end(text: str, limit: int) -> int:
    """The last place up to `limit` where a character ends that is no white space; 0 where there is none."""
    while limit > 0 and (text[limit - 1].isspace() or not is_boundary(text, limit)):
        limit -= 1
    return max(limit, 0)
