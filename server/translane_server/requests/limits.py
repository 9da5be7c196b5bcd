"""What a request may ask for. Every wrong field is named, all of them at once; the options are `option_checks`'."""

from __future__ import annotations

from collections.abc import Sequence
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


def check_characters(field: str, texts: Sequence[str], tokens: int) -> list[FieldViolation]:
    """Which of `texts` are too long to count their tokens.

    Args:
        field: that has the texts, with {} for the number of each.
        texts: of a request.
        tokens: how many tokens each may have.
    """
    characters = _CHARACTERS_PER_TOKEN * tokens
    return [
        FieldViolation(field.format(number), f"has {len(text)} characters, at most {characters} are accepted")
        for number, text in enumerate(texts)
        if len(text) > characters
    ]


def check_tokens(field: str, ids: Sequence[Sequence[int]], limit: int, advice: str = "") -> list[FieldViolation]:
    """Which of `ids`, those of the texts of `field`, are longer than `limit` tokens."""
    return [
        FieldViolation(field.format(number), f"has {len(each)} tokens, at most {limit} are accepted{advice}")
        for number, each in enumerate(ids)
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
