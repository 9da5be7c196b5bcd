"""Finds placeholders in braces: `{name}`, `{{ name }}`, `${name}`, `{% tag %}`, and messages of ICU.

Braces nest, so a regular expression cannot find their ends. One pass over the text pairs them, however deep they nest.
ICU: https://unicode-org.github.io/icu/userguide/format_parse/messages/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from translane_server.text.kept import Kept

_LONGEST_NAME = 128  # characters of a placeholder that is neither a message nor in double braces
_BRACE = re.compile("[{}]")
_NAME = re.compile(rf"[^\s{{}}]{{0,{_LONGEST_NAME}}}")
_MESSAGE = re.compile(
    r"\s{0,8}[\w.-]{1,128}\s{0,8},\s{0,8}"
    r"(?:plural|select|selectordinal|choice|number|date|time|spellout|ordinal|duration)\b"
)
_BEFORE = frozenset("$#%")  # signs that belong to a brace after them
_CODE = frozenset("%#")  # signs inside of both braces of a template's tag


def braced(text: str) -> Iterator[Kept]:
    """Yield the placeholders in braces, each after those within it."""
    opened: list[int] = []
    closed_at: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif opened:
            start, end = opened.pop(), match.start()
            closed_at[start] = end
            if _is_placeholder(text, start, end, closed_at):
                yield Kept(start - (text[start - 1 : start] in _BEFORE), end + 1)


def _is_placeholder(text: str, start: int, end: int, closed_at: dict[int, int]) -> bool:
    """Whether `text[start : end + 1]`, which is in braces, is a placeholder."""
    if _NAME.fullmatch(text, start + 1, end):
        return True
    if closed_at.get(start + 1) == end - 1:  # double braces
        return True
    if end - start > 3 and text[start + 1] == text[end - 1] and text[end - 1] in _CODE:
        return True
    return _MESSAGE.match(text, start + 1, end) is not None
