"""Reads the files of stored glossaries: a term on each line."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple

from translane_server.core.errors import GlossaryError
from translane_server.core.terminal import shown
from translane_server.text.characters import composed
from translane_server.text.glossary import Term
from translane_server.text.language_tags import LONGEST_TAG

SUFFIX = ".tsv"
MOST_BYTES = 16 * 1024 * 1024  # of a file
MOST_TERMS = 50_000  # of a file
LONGEST_PHRASE = 128  # of a source or target [characters]

_LONGEST_LINE = 4096  # bytes; two phrases and the flags are shorter
_LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*", re.ASCII)
_TAG = re.compile(r"[A-Za-z]{2,8}([\-_][A-Za-z0-9]{1,8})*")
_FLAGS = {"ignore-case": "ignore_case", "inflected": "inflected"}
_MOST_COLUMNS = 3


class GlossaryName(NamedTuple):
    """What the name of a file says: the glossary's name, and the BCP-47 tags of its languages."""

    name: str
    source: str
    target: str


def read_name(file_name: str) -> GlossaryName:
    """Return what the name of a file says: `medical.de.en.tsv` is the glossary `medical` from German to English.

    Raises:
        GlossaryError: the name is another one.
    """
    parts = file_name.removesuffix(SUFFIX).rsplit(".", 2)
    if len(parts) == len(GlossaryName._fields):
        found = GlossaryName(*parts)
        tags = (found.source, found.target)
        if _is_name(found.name) and all(len(tag) <= LONGEST_TAG and _TAG.fullmatch(tag) for tag in tags):
            return found
    raise GlossaryError("its name must be NAME.SOURCE.TARGET.tsv with two language tags, such as medical.de.en.tsv")


def read_terms(content: bytes) -> Iterator[Term]:
    """Yield the terms of a file.

    A line holds a source, a tab and a target, and maybe another tab and flags: `ignore-case`, `inflected`, or both with
    a comma between. Blank lines, lines that begin with #, and white space around a phrase are left out.

    Raises:
        GlossaryError: a line holds no term, or the file has too many; the message names the line.
    """
    lines: dict[tuple[str, bool, bool], int] = {}
    for number, text in _lines(content):
        if not text.strip() or text.startswith("#"):
            continue
        if len(lines) == MOST_TERMS:
            raise GlossaryError(f"line {number}: a file has at most {MOST_TERMS} terms")
        try:
            term = _term(text)
            key = (composed(term.source), term.ignore_case, term.inflected)
            if (first := lines.setdefault(key, number)) != number:
                raise GlossaryError(f"the source is that of line {first}")
        except GlossaryError as error:
            raise GlossaryError(f"line {number}: {error}") from None
        yield term


def _is_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def _lines(content: bytes) -> Iterator[tuple[int, str]]:
    for number, ended in enumerate(BytesIO(content.removeprefix(BOM_UTF8)), start=1):  # a list of all would be large
        line = ended.removesuffix(b"\n")
        if len(line) > _LONGEST_LINE:
            raise GlossaryError(f"line {number}: it has {len(line):,} bytes, at most {_LONGEST_LINE} are accepted")
        try:
            yield number, line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            raise GlossaryError(f"line {number}: it is not UTF-8") from None


def _term(text: str) -> Term:
    columns = [column.strip() for column in text.split("\t")]
    if not 1 < len(columns) <= _MOST_COLUMNS:
        tabs = "no tab" if len(columns) == 1 else f"{len(columns) - 1} tabs"
        raise GlossaryError(f"it has {tabs}, and a term has one or two: between source, target and flags")
    source, target, *others = columns
    for side, phrase in (("source", source), ("target", target)):
        if not phrase:
            raise GlossaryError(f"the {side} is empty")
        if len(phrase) > LONGEST_PHRASE:
            raise GlossaryError(f"the {side} has {len(phrase)} characters, at most {LONGEST_PHRASE} are accepted")
        if "\0" in phrase:
            raise GlossaryError(f"the {side} has a zero character")
    flags = [flag.strip() for flag in "".join(others).split(",") if flag.strip()]
    for flag in flags:
        if flag not in _FLAGS:
            raise GlossaryError(f"{shown(flag)} is not a flag; there is {' and '.join(_FLAGS)}")
    return Term(source, target, **{_FLAGS[flag]: True for flag in flags})
