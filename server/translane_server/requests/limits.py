"""Limits of requests, apart from their options (see `option_checks`). One error names all wrong fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.settings import TokenLimits

_SHOWN_CHARACTERS = 40

# A text with more characters than this for each allowed token is refused before it is tokenized. Tokenizing megabytes
# takes a second, and no real text has such long tokens.
_CHARACTERS_PER_TOKEN = 64


@dataclass(frozen=True)
class RequestLimits:
    """The limits of every request."""

    texts_per_request: int
    sentences_waiting: int
    tokens: TokenLimits
    beam_size: int


def check_count(name: str, count: int, limit: int) -> list[FieldViolation]:
    """Return a violation if the list `name` has too few or too many entries."""
    if not count:
        return [FieldViolation(name, "is empty; at least one is needed")]
    if count > limit:
        return [FieldViolation(name, f"has {count} entries, at most {limit} are accepted")]
    return []


def check_characters(field: str, texts: Sequence[str], tokens: int) -> list[FieldViolation]:
    """Return a violation for each text that is too long to be tokenized.

    Args:
        field: name of the texts' field, with {} for the number of a text.
        texts: texts of a request.
        tokens: maximum tokens of a text.
    """
    characters = _CHARACTERS_PER_TOKEN * tokens
    return [
        FieldViolation(field.format(number), f"has {len(text)} characters, at most {characters} are accepted")
        for number, text in enumerate(texts)
        if len(text) > characters
    ]


def check_tokens(field: str, ids: Sequence[Sequence[int]], limit: int, advice: str = "") -> list[FieldViolation]:
    """Return a violation for each text of `field` whose `ids` are more than `limit`."""
    return [
        FieldViolation(field.format(number), f"has {len(each)} tokens, at most {limit} are accepted{advice}")
        for number, each in enumerate(ids)
        if len(each) > limit
    ]


def refuse(wrong: Sequence[FieldViolation]) -> None:
    """Refuse a request with these violations, if there are any.

    Raises:
        InvalidRequestError: there is a violation.
    """
    if wrong:
        raise InvalidRequestError(*wrong)


def shown(value: str) -> str:
    """Return `value` of a request, quoted and shortened for a message."""
    return repr(value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…")
