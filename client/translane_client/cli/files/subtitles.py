"""Subtitles: SubRip (.srt) and WebVTT (.vtt, https://www.w3.org/TR/webvtt1/). The text of cues is translated.

Numbers, times, settings, styles and comments stay as they are. The lines of a cue are joined, translated, and cut again
where the lines of the source were cut. A line that begins with a dash is another speaker's, and a text of its own.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

from translane_client.cli.files.cue_tags import CUE_TAGS
from translane_client.cli.files.document import Document, Edit, parts_of, read_document
from translane_client.cli.files.line_breaks import BrokenLines
from translane_client.cli.files.part import Part, is_worth_translating
from translane_client.cli.text_files import FileError, on_a_line

_TAG = re.compile("|".join(CUE_TAGS))
_TAGGED = re.compile(f"({_TAG.pattern})")
_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}"
_TIMING = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_BEFORE = re.compile(rf"(?:\s|{_TAG.pattern}|[-–—])*")
_SPEAKER = re.compile(rf"(?:\s|{_TAG.pattern})*[-–—]")
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{0,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")


def srt_parts(file: BinaryIO, name: str) -> Iterator[Part]:
    """The parts of a SubRip file. FileError: it cannot be read, or has text and no cue."""
    document = read_document(file, name)
    edits = list(_edits(document, escaped=False))
    if document.text.strip() and not _has_cues(document):
        raise FileError(
            f"{name}: no cue of SubRip is in the file; a cue has a line such as 00:00:01,000 --> 00:00:02,000"
        )
    return parts_of(document, edits)


def vtt_parts(file: BinaryIO, name: str) -> Iterator[Part]:
    """The parts of a WebVTT file. FileError: it cannot be read, or is no WebVTT."""
    document = read_document(file, name)
    if not re.match(r"WEBVTT(?:\s|\Z)", document.text):
        raise FileError(f"{name}: no WebVTT, which begins with WEBVTT")
    return parts_of(document, _edits(document, escaped=True))


def _has_cues(document: Document) -> bool:
    return any(_TIMING.match(line) for line in document.text.splitlines())


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    text: str
    """The line without its end."""


def _edits(document: Document, *, escaped: bool) -> Iterator[Edit]:
    lines = [_Line(line.start, document.text[line.start : line.end]) for line in document.lines]
    timings = [index for index, line in enumerate(lines) if _TIMING.match(line.text)]
    for index, following in pairwise([*timings, len(lines)]):
        cue = lines[index + 1 : following]
        if following < len(lines) and not escaped and cue and cue[-1].text.strip().isdigit():
            cue.pop()  # the number of the next cue
        for group in _groups(cue, only_first=escaped):
            yield from _edit(group, document.line_end, escaped=escaped)


def _groups(lines: Sequence[_Line], *, only_first: bool) -> Iterator[list[_Line]]:
    """Runs of lines that are not blank. What follows a blank line in WebVTT is no part of the cue."""
    group = list[_Line]()
    for line in lines:
        if line.text.strip():
            group.append(line)
            continue
        if group:
            yield group
            group = []
        if only_first:
            return
    if group:
        yield group


def _edit(lines: Sequence[_Line], line_end: str, *, escaped: bool) -> Iterator[Edit]:
    speeches = list[list[str]]()
    for line in lines:
        if not speeches or _SPEAKER.match(line.text):
            speeches.append([])
        speeches[-1].append(line.text)
    parts = [_Speech.of(speech, escaped=escaped) for speech in speeches]
    texts = tuple(part.text for part in parts if part.text)

    def render(translations: Sequence[str]) -> str:
        left = iter(translations)
        return line_end.join(
            part.render(next(left), line_end) if part.text else line_end.join(part.source) for part in parts
        )

    if texts:
        last = lines[-1]
        yield Edit(lines[0].start, last.start + len(last.text), texts, render)


@dataclass(frozen=True, slots=True)
class _Speech:
    """The lines of a cue that are one text."""

    source: Sequence[str]
    """The lines as they are in the file."""
    before: str
    """Tags and a dash before the text."""
    lines: BrokenLines
    """The text as it is in the file; empty where there is nothing to translate."""
    after: str
    escaped: bool

    @classmethod
    def of(cls, lines: Sequence[str], *, escaped: bool) -> _Speech:
        """The speech on these lines."""
        broken = BrokenLines.of(lines)
        found = _BEFORE.match(broken.text)
        before = found[0] if found else ""
        after = _tags_at_end(broken.text[len(before) :])
        inner = broken.within(len(before), len(broken.text) - len(before) - len(after))
        if not is_worth_translating(_TAG.sub("", inner.text)):
            inner = BrokenLines("", ())
        return cls(lines, before, inner, after, escaped)

    @property
    def text(self) -> str:
        """What is translated; empty where nothing is."""
        if not self.escaped:
            return self.lines.text
        return "".join(map(_plain, _TAGGED.split(self.lines.text)))

    def render(self, translation: str, line_end: str) -> str:
        """The lines of the translation, with what was around the text."""
        text = on_a_line(translation).strip()
        if self.escaped:
            text = self._escape(text)
        return self.before + line_end.join(self.lines.cut(text)) + self.after

    def _escape(self, text: str) -> str:
        """The text as WebVTT, with tags and entities as the cue has them."""
        parts = _TAGGED.split(self.lines.text)
        as_written = [part for part in parts if _TAG.fullmatch(part)]
        as_written += [entity for part in parts for entity in _ENTITY.findall(_plain(part))]
        written = re.split(f"({'|'.join(map(re.escape, as_written))})", text) if as_written else [text]
        entities = {html.unescape(entity): entity for part in parts for entity in reversed(_ENTITY.findall(part))}
        signs = str.maketrans(
            {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
            | {sign: entity for sign, entity in entities.items() if len(sign) == 1 and not sign.isalnum()}
        )
        return "".join(part if index % 2 else part.translate(signs) for index, part in enumerate(written))


def _plain(part: str) -> str:
    """A part of a cue without entities, but for those that would make text look like a tag or another entity."""
    if _TAG.fullmatch(part):
        return part
    plain = html.unescape(part)
    kept = ("<>" if _TAG.search(plain) else "") + ("&" if _ENTITY.search(plain) else "")
    return plain if not kept else _ENTITY.sub(lambda each: _unless_in(kept, each[0]), part)


def _unless_in(kept: str, entity: str) -> str:
    sign = html.unescape(entity)
    return entity if sign in kept else sign


def _tags_at_end(text: str) -> str:
    """The tags and white space at the end of the text."""
    end = len(text)
    while True:
        core = text[:end].rstrip()
        begin = max(core.rfind("<"), core.rfind("{"))
        if begin < 0 or not _TAG.fullmatch(core, begin):
            return text[len(core) :]
        end = begin
