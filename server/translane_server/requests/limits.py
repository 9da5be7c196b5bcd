"""What a request may ask for. Every wrong field is named, all of them at once; the options are `option_checks`'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.settings import TokenLimits

_SHOWN_CHARACTERS = 40

# A text of more characters than this for each token it may have is refused unread: counting the tokens of megabytes
# takes a second, and no real text has pieces of that length.
_CHARACTERS_PER_TOKEN = 64


@dataclass(frozen=True)
class RequestLimits:
    """What every request is held to."""

    texts_per_request: int
    sentences_waiting: int
    tokens: TokenLimits
    beam_size: int


def check_count(name: str, count: int, limit: int) -> list[FieldViolation]:
    """Whether the list `name` has too few or too many entries."""
    if not count:
        return [FieldViolation(name, "is empty; at least one is needed")]
    if count > limit:
        return [FieldViolation(name, f"has {count} entries, at most {limit} are accepted")]
    return []


def check_characters(texts: Iterable[tuple[str, str]], tokens: int) -> list[FieldViolation]:
    """Which of `texts`, each after its field's name, are too long to count their tokens.

    `tokens` is how many tokens each may have.
    """
    characters = _CHARACTERS_PER_TOKEN * tokens
    return [
        FieldViolation(name, f"has {len(text)} characters, at most {characters} are accepted")
        for name, text in texts
        if len(text) > characters
    ]


def check_tokens(ids: Iterable[tuple[str, Sequence[int]]], limit: int, advice: str = "") -> list[FieldViolation]:
    """Which of `ids`, each after its field's name, are longer than `limit` tokens."""
    return [
        FieldViolation(name, f"has {len(each)} tokens, at most {limit} are accepted{advice}")
        for name, each in ids
        if len(each) > limit
    ]


def refuse(wrong: Sequence[FieldViolation]) -> None:
    """Raise what answers these violations, if there are any.

    Raises:
        InvalidRequestError: there are.
    """
    if wrong:
        raise InvalidRequestError(*wrong)


def shown(value: str) -> str:
    """`value` of a request, quoted for a message and not longer than a message can be."""
    return repr(value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…")
