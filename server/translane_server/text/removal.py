"""Takes parts out of a text, with the white space that they would leave double."""

from __future__ import annotations

from collections.abc import Sequence

from translane_server.text.kept import Kept, Kind

_CLOSING_SIGNS = frozenset(",.;:!?…%)]}”’»，。；：！？、）】》」』")
_OPENING_SIGNS = frozenset("([{“‘«„（【《「『")


Span = tuple[int, int]


def removed(text: str, start: int, end: int, kept: Sequence[Kept]) -> list[Span]:
    """Return the spans of `text[start:end]` that are taken out: kept parts, and white space that they leave double."""
    found: list[Span] = []
    number = 0
    while number < len(kept):
        one, other, kind = kept[number]
        number += 1
        if kind in (Kind.OPENING_TAG, Kind.CLOSING_TAG):
            found.append((one, other))
            continue
        while number < len(kept) and kept[number].kind not in (Kind.OPENING_TAG, Kind.CLOSING_TAG):
            between = text[other : kept[number].start]
            if between and not between.isspace():
                break
            other = kept[number].end
            number += 1
        floor = found[-1][1] if found else start
        before = one - len(text[floor:one]) + len(text[floor:one].rstrip())
        ceiling = kept[number].start if number < len(kept) else end
        after = other + len(text[other:ceiling]) - len(text[other:ceiling].lstrip())
        sign_after, sign_before = text[after : min(after + 1, end)], text[max(before - 1, start) : before]
        if other < after and (before < one or before == start or sign_before in _OPENING_SIGNS):
            other = after
        if before < one and (after == end or sign_after in _CLOSING_SIGNS):
            one = before
            other = after
        found.append((one, other))
    return found
