"""Subtitles: SubRip, and WebVTT (https://www.w3.org/TR/webvtt1/). The text of cues is translated.

Numbers, times, settings, styles and comments stay as they are. The lines of a cue are joined, translated, and cut again
where the lines of the source were cut. A line that begins with a dash is another speaker's, and a text of its own.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise, takewhile
from unicodedata import east_asian_width

from translane_server.core.budget import Budget
from translane_server.text.documents.document import (
    DocumentError,
    Place,
    Span,
    TextFile,
    is_worth_translating,
    on_a_line,
)

CUE_TAGS = (r"<[^<>]*>", r"\{\\[^{}]*\}")
"""Regular expressions of the tags in a cue, such as <i>, <v Bob>, <00:19.000> and {\\an8}."""

_TAG = re.compile("|".join(CUE_TAGS))
_TAGGED = re.compile(f"({_TAG.pattern})")
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{0,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_TAG_OR_ENTITY = re.compile(f"({_TAG.pattern}|{_ENTITY.pattern})")
_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}"
_TIMING = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
# Programs read SubRip in other forms, too, such as 00:00:05 --> 00:00:06, or a time below zero after a shift.
_SUBRIP_TIMING = re.compile(r"[ \t]*-?\d+:[\d:.,]+[ \t]*-{1,2}>")
_BEFORE = re.compile(rf"(?:\s|{_TAG.pattern}|[-–—])*+")
_SPEAKER = re.compile(rf"(?:\s|{_TAG.pattern})*+[-–—]")


def read_subrip(file: TextFile, _: bool, budget: Budget) -> Iterator[Place]:
    """Yield the cues. See `ReadPlaces`. DocumentError: the file has text and no cue."""
    if file.text.strip() and not any(_SUBRIP_TIMING.match(file.text, line.start, line.end) for line in file.lines()):
        raise DocumentError("no cue of SubRip is in the file; a cue has a line such as 00:00:01,000 --> 00:00:02,000")
    return _cues(file, budget, is_webvtt=False)


def read_webvtt(file: TextFile, _: bool, budget: Budget) -> Iterator[Place]:
    """Yield the cues. See `ReadPlaces`. DocumentError: the file is no WebVTT."""
    if not re.match(r"WEBVTT(?:\s|\Z)", file.text):
        raise DocumentError("no WebVTT, which begins with WEBVTT")
    return _cues(file, budget, is_webvtt=True)


def _cues(file: TextFile, budget: Budget, *, is_webvtt: bool) -> Iterator[Place]:
    lines = list(file.lines())
    timing = _TIMING if is_webvtt else _SUBRIP_TIMING
    timings = [i for i, line in enumerate(lines) if timing.match(file.text, line.start, line.end)]
    line_end = file.line_end
    for i, following in pairwise([*timings, len(lines)]):
        cue = lines[i + 1 : following]
        if following < len(lines) and not is_webvtt and cue and _said(file, cue[-1]).strip().isdigit():
            cue.pop()  # the number of the next cue
        if is_webvtt:  # what follows an empty line is no part of the cue
            cue = list(takewhile(lambda line: line.start < line.end, cue))
        for group in _groups(file, cue):
            yield _place(file, group, line_end, budget, is_webvtt=is_webvtt)


def _said(file: TextFile, line: Span) -> str:
    return file.text[line.start : line.end]


def _groups(file: TextFile, lines: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield runs of lines that are not blank."""
    for has_text, group in groupby(lines, lambda line: bool(_said(file, line).strip())):
        if has_text:
            yield list(group)


def _place(file: TextFile, lines: Sequence[Span], line_end: str, budget: Budget, *, is_webvtt: bool) -> Place:
    speeches: list[_Speech] = []
    texts: list[tuple[int, str]] = []
    starts = [i for i, line in enumerate(lines) if i == 0 or _SPEAKER.match(file.text, line.start, line.end)]
    for first, after in pairwise([*starts, len(lines)]):
        budget.check()
        speech = _Speech.of([_said(file, line) for line in lines[first:after]], is_webvtt=is_webvtt)
        speeches.append(speech)
        if speech.lines.text:
            texts.append((lines[first].start, speech.text))
    return Place(lines[0].start, lines[-1].end, texts, partial(_cue, speeches, line_end))


@dataclass(frozen=True, slots=True)
class BrokenLines:
    """A text, and the places where it was broken into lines."""

    text: str  # the lines, with a space between them, and nothing between characters of scripts that write no spaces
    # where each break is in the text: the place of the space, or of the character after the break
    breaks: tuple[int, ...]

    @classmethod
    def of(cls, lines: Sequence[str]) -> BrokenLines:
        """Return the text on the lines."""
        parts, last, length, breaks = [lines[0].rstrip()], lines[0].rstrip()[-1:], len(lines[0].rstrip()), []
        for line in map(str.strip, lines[1:]):
            breaks.append(length)
            part = line if last and line and _is_wide(last) and _is_wide(line[0]) else f" {line}"
            parts.append(part)
            last, length = part[-1:], length + len(part)
        return cls("".join(parts), tuple(breaks))

    def within(self, start: int, length: int) -> BrokenLines:
        """Return the part of so many characters that begins at `start`, with the breaks in it."""
        kept = (place - start for place in self.breaks)
        return BrokenLines(self.text[start : start + length], tuple(place for place in kept if 0 < place < length))

    def cut(self, text: str) -> list[str]:
        """Return another text on as many lines, each with about the same share of it; fewer where it is short.

        A line ends at a space, or between two characters of scripts that write no spaces. No line is blank.
        """
        if not self.breaks:
            return [text]
        places = [
            place
            for place in range(1, len(text))
            if (text[place] == " " and text[place + 1 : place + 2].strip())
            or (_is_wide(text[place - 1]) and _is_wide(text[place]) and not text[place].isspace())
        ]
        lines, begun, low = list[str](), 0, 0
        for end_in_source in self.breaks:
            low = bisect_left(places, begun + 1, low)
            if low == len(places):
                break
            wanted = end_in_source * len(text) / len(self.text)
            after = bisect_left(places, wanted, low)
            end = min(places[max(low, after - 1) : after + 1], key=lambda place: abs(place - wanted))
            lines.append(text[begun:end])
            begun = end + (text[end] == " ")
        return [*lines, text[begun:]]


def _is_wide(character: str) -> bool:
    return east_asian_width(character) in "WF"


def _cue(speeches: Sequence[_Speech], line_end: str, translations: Sequence[str]) -> str:
    """Return lines of a cue without a blank one between them."""
    left = iter(translations)
    return line_end.join(
        speech.write(next(left), line_end) if speech.lines.text else line_end.join(speech.source) for speech in speeches
    )


@dataclass(frozen=True, slots=True)
class _Speech:
    """Lines of a cue that are one text."""

    source: Sequence[str]  # the lines as they are in the file
    before: str  # tags and a dash before the text
    lines: BrokenLines  # the text as it is in the file; empty where there is nothing to translate
    after: str  # tags and white space after the text
    is_webvtt: bool  # whether the text has entities

    @classmethod
    def of(cls, lines: Sequence[str], *, is_webvtt: bool) -> _Speech:
        broken = BrokenLines.of(lines)
        found = _BEFORE.match(broken.text)
        before = found[0] if found else ""
        after = _tags_at_end(broken.text[len(before) :])
        inner = broken.within(len(before), len(broken.text) - len(before) - len(after))
        said = _TAG.sub("", inner.text)
        if not is_worth_translating(html.unescape(said) if is_webvtt else said):
            inner = BrokenLines("", ())
        space = lines[-1][len(lines[-1].rstrip()) :]
        return cls(lines, before, inner, after + space, is_webvtt)

    @property
    def text(self) -> str:
        """What is translated."""
        return "".join(map(_plain, _TAGGED.split(self.lines.text))) if self.is_webvtt else self.lines.text

    def write(self, translation: str, line_end: str) -> str:
        """Return the lines of a translation, with what was around the text."""
        text = on_a_line(translation)
        if self.is_webvtt:
            text = self._escaped(text)
        return self.before + line_end.join(self.lines.cut(text)) + self.after

    def _escaped(self, text: str) -> str:
        """Return text as WebVTT. Tags and entities that the source has stay, and signs get the entities that it has."""
        as_written: set[str] = set()
        entities: dict[str, str] = {}
        for part in _TAGGED.split(self.lines.text):
            if _TAG.fullmatch(part):
                as_written.add(part)
                continue
            as_written.update(_ENTITY.findall(_plain(part)))
            for entity in _ENTITY.findall(part):
                entities.setdefault(html.unescape(entity), entity)
        signs = str.maketrans(
            {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
            | {sign: entity for sign, entity in entities.items() if len(sign) == 1 and not sign.isalnum()}
        )
        return "".join(part if part in as_written else part.translate(signs) for part in _TAG_OR_ENTITY.split(text))


def _plain(part: str) -> str:
    """Return a part of a cue without entities, but for those that would make a tag or another entity of text."""
    if _TAG.fullmatch(part):
        return part
    plain = html.unescape(part)
    kept = ("<>" if _TAG.search(plain) else "") + ("&" if _ENTITY.search(plain) else "")
    if not kept:
        return plain
    return _ENTITY.sub(lambda each: each[0] if (sign := html.unescape(each[0])) in kept else sign, part)


def _tags_at_end(text: str) -> str:
    """Return the tags at the end of a text, and the white space around them."""
    end = place = 0
    for start, after in [*(match.span() for match in _TAG.finditer(text)), (len(text), len(text))]:
        said = text[place:start].rstrip()
        end = place + len(said) if said else end
        place = after
    return text[end:]
