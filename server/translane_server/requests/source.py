"""A sentence of a text, as the request's reader cuts it and as the answer's builder needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from translane_server.requests.kept_terms import SentenceTerms
from translane_server.text.marks import MarkedText


@dataclass(slots=True)
class Source:
    """A sentence to translate.

    Attributes:
        text: the sentence.
        ids: its tokens.
        surfaces: the part of the text that each token stands for; None until somebody needs them.
        marked: the text and its marks, which are put into the translation; None if nothing was taken out of it.
        escape: makes translated text fit the format of the request.
        terms: the terms that occur in it; None if the request has no terms.
    """

    text: str
    ids: Sequence[int]
    surfaces: Sequence[str] | None = None
    marked: MarkedText | None = None
    escape: Callable[[str], str] = str
    terms: SentenceTerms | None = None
