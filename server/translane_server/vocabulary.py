"""What the engine knows of the target vocabulary: special ids, and what each token adds to the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """The V target tokens.

    Attributes:
        decoder_start: the id the decoder is first fed.
        eos: the end-of-sentence id.
        surfaces: for each id the UTF-8 it adds to the text, a leading space included; empty for control tokens. A
            translation's text is that of its tokens, one after the other, without the first space. A token may hold
            part of a character (byte fallback).
    """

    decoder_start: int
    eos: int
    surfaces: Sequence[bytes] = ()
