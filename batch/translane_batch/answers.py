"""What becomes of each source, and the lines of files that say so."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

UNREADABLE, REFUSED, FAILED = "unreadable", "refused", "decoding failed"
"""Why a record has no translation: its text cannot be read, the service refuses the text, or decoding it fails."""

# Made once: json.dumps makes an encoder for each call that does not take the defaults.
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Answer:
    """The translation of a source, or why it is left out.

    Attributes:
        text: the translation; "" if there is none.
        reason: why the translation is left out; "" if it is not. One of few sentences, so that they can be counted.
        detail: more about the reason.
    """

    text: str
    reason: str = ""
    detail: str = ""


BLANK = Answer("")
"""The answer of a record without text."""


def line_of(value: Any) -> bytes:
    r"""Return a JSON value as a line of UTF-8. Equal strings give equal lines, and only the end of a line is "\n"."""
    return _encode(value).encode() + b"\n"


def encoded(answer: Answer) -> bytes:
    """Return the line of an answer."""
    return line_of([answer.text, answer.reason, answer.detail] if answer.reason else [answer.text])


def decoded(line: bytes) -> Answer:
    """Return the answer of a line.

    Raises:
        ValueError: the line holds no answer.
    """
    values = json.loads(line)
    if not isinstance(values, list) or len(values) not in (1, 3) or not all(isinstance(each, str) for each in values):
        raise ValueError("the line holds no answer")
    return Answer(*values)
