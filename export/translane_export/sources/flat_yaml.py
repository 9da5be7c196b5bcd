"""Reads the YAML that Marian writes: a file of settings or of ids, a line for each name, without levels.

Lines such as ``dim-emb: 512`` have a value, and lines such as ``  - value`` after a name make a list. Anything deeper
is passed over: no setting that matters has it. Marian's own writer is yaml-cpp, https://yaml.org/spec/1.2.2.
"""

from __future__ import annotations

import re
from typing import Any

# White space before the colon is part of a name without quotes: to look for its end at each of n spaces takes n² steps.
_LINE = re.compile(r"""("(?:[^"\\]|\\.)*"\s*|'(?:[^']|'')*'\s*|[^\s#'"-].*?|-\s*|-\S.*?):(?:\s+(.*))?""")
_ITEM = re.compile(r"\s*-\s+(.*)")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER, _NUMBER = re.compile(r"[-+]?\d{1,18}"), re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?")
_LONGEST_NUMBER = 40  # characters


def read_settings(text: str) -> dict[str, Any]:
    """Return the settings of a file by name: truth values, numbers, texts, or lists of these.

    Raises:
        ValueError: a line that begins with no space is no setting; the message has its number.
    """
    settings: dict[str, Any] = {}
    name = ""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip()
        if not line or line.startswith(("#", "---", "...", "%")):
            continue
        if item := _ITEM.fullmatch(line):
            if name and settings[name] in (None, []):
                settings[name] = []
            if name and isinstance(settings[name], list):
                settings[name].append(scalar(item[1]))
        elif line[0] == " ":
            if name and settings[name] is None and line.strip() == "[]":
                settings[name] = []
        elif found := _LINE.fullmatch(line):
            name = unquoted(found[1].rstrip())
            settings[name] = scalar(found[2] or "")
        else:
            raise ValueError(f"line {number} is no setting")
    return settings


def read_ids(text: str) -> dict[str, int]:
    """Return the ids of a vocabulary by piece.

    Raises:
        ValueError: a line is no piece with an id, or a piece is there twice; the message has its number.
    """
    ids: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        piece, colon, id_ = line.strip("\r").rpartition(":")
        if not colon and not line.strip():
            continue
        if not colon or not _INTEGER.fullmatch(id_.strip()) or id_.strip().startswith("-"):
            raise ValueError(f"line {number} is no piece with its id")
        name = unquoted(piece)
        if name in ids:
            raise ValueError(f"line {number} has a piece of a line before")
        ids[name] = int(id_)
    return ids


def scalar(text: str) -> Any:
    """Return the value that a text is written as."""
    text = text.strip()
    if text[:1] in ('"', "'"):
        return unquoted(text)
    if text.startswith("[") and text.endswith("]"):
        return [scalar(part) for part in text[1:-1].split(",") if part.strip()]
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text) else text


def unquoted(text: str) -> str:
    """Return a text without its quotes."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _ESCAPE.sub(_character, text[1:-1])
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) == 1:
        return _ESCAPES.get(code, code)
    number = int(code[1:], 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\N{REPLACEMENT CHARACTER}"
