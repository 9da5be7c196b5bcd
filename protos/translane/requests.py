"""What is asked for: texts to translate, and translations to score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from translane.options import Format, Options


@dataclass(frozen=True, slots=True)
class TranslationRequest:
    """Texts, their languages, and how to translate them."""

    texts: Sequence[str]
    model: str = ""
    """A model's name; if it is empty, the languages choose."""
    source_language: str = ""
    """A BCP-47 tag, "auto" or empty."""
    target_language: str = ""
    """A BCP-47 tag or empty."""
    options: Options = field(default_factory=Options)
    format: str = Format.TEXT
    """One of `Format`, or the name of a format that is not known here."""
    streamed: bool = False
    """Whether this is the one text of a stream."""

    @property
    def field(self) -> str:
        """The name of the texts' field, with {} for the number of a text."""
        return "text" if self.streamed else "texts[{}]"


@dataclass(frozen=True, slots=True)
class DocumentRequest:
    """A file, its languages, and how to translate it."""

    content: bytes
    mime_type: str
    """What the file is, such as text/html."""
    model: str = ""
    source_language: str = ""
    target_language: str = ""
    options: Options = field(default_factory=Options)
    replace_translations: bool = False
    """Whether what has a translation in the file is translated anew."""


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    """Pairs of a text and a translation of it, and their languages."""

    inputs: Sequence[tuple[str, str]]
    model: str = ""
    source_language: str = ""
    target_language: str = ""
    return_tokens: bool = False
