"""The target vocabulary as decoding needs it: special ids, and the text of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """The V target tokens.

    Attributes:
        decoder_start: the id that is fed to the decoder first.
        eos: the end-of-sentence id.
        surfaces: the UTF-8 that each token adds to the text, [V]. It may have a leading space, or be a part of a
            character (byte fallback). It is empty for control tokens. The text of a translation is the surfaces of its
            tokens, joined, without a space at the start.
    """

    decoder_start: int
    eos: int
    surfaces: Sequence[bytes] = ()
