"""Matching a request's language with a model's."""

from __future__ import annotations

from collections.abc import Sequence


def lookup(wanted: str, available: Sequence[str]) -> str | None:
    """The one of `available` that `wanted` means, by the lookup of RFC 4647, section 3.4.

    Subtags are dropped from the end until one matches: ``zh-Hant-TW`` finds ``zh-Hant`` before ``zh``. Case does not
    matter.
    """
    known = {language.lower(): language for language in available}
    subtags = wanted.lower().split("-")
    while subtags:
        if match := known.get("-".join(subtags)):
            return match
        subtags.pop()
        if subtags and len(subtags[-1]) == 1:  # a singleton only introduces the subtags after it
            subtags.pop()
    return None
