"""Reads --decoding-defaults: the search of requests that set no search."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from translane.arguments import hint
from translane_server.bundle.manifest import SearchDefaults
from translane_server.core.terminal import shown

_GREEDY = ("", "none")


def read_defaults(value: Any) -> Any:
    """Turn text such as beam_size=4,length_penalty=0.6 into `SearchDefaults`. Other values stay as they are.

    Raises:
        ValueError: an item is not NAME=VALUE, its name is unknown or occurs twice, or its value is wrong.
    """
    if not isinstance(value, str):
        return value
    if value.strip() in _GREEDY:
        return SearchDefaults()
    found: dict[str, str] = {}
    for item in value.split(","):
        name, equals, text = map(str.strip, item.partition("="))
        if not equals:
            raise ValueError(f"{shown(item)} has no value: write NAME=VALUE, such as beam_size=4")
        if name == "max_length":
            raise ValueError("max_length has a setting of its own, --default-max-length")
        if name not in SearchDefaults.model_fields:
            known = SearchDefaults.model_fields
            raise ValueError(f"{shown(name)} is none of {', '.join(known)}{hint(name, known)}")
        if name in found:
            raise ValueError(f"{name} occurs twice")
        found[name] = text
    try:
        return SearchDefaults.model_validate(found)
    except ValidationError as error:
        problem = error.errors()[0]
        message = problem["msg"]
        raise ValueError(f"{problem['loc'][0]}: {message[:1].lower()}{message[1:]}") from None
