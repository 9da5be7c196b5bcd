"""Parts of texts that translations keep as they are: found, replaced by placeholders, and put back.

Braces nest, so a regular expression cannot find their ends. One pass over the text pairs them, however deep they nest.
ICU: https://unicode-org.github.io/icu/userguide/format_parse/messages/.

RE2 takes time in proportion to the length of the text, whatever the pattern: https://github.com/google/re2/wiki/Syntax.

The rules look for what nobody writes as a word of a sentence. "100 %", "and/or" and "COVID-19" are words, and are
translated. All rules take time in proportion to the length of the text: no repetition can be divided in two ways, and a
rule that begins with a run of characters begins only where the run does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

import re2
import regex

from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.characters import UNSPACED

Span = tuple[int, int]
"""Where a part of a text starts and ends [characters]."""


class Kind(Enum):
    """What a kept part is, where that matters."""

    OPENING_TAG = auto()
    CLOSING_TAG = auto()
    EMOJI = auto()
    LEFT_OUT = auto()  # the model does not see it, and the translation has it not
    OTHER = auto()


class Kept(NamedTuple):
    """The part `text[start:end]`, which is in the translation exactly once, as it is."""

    start: int
    end: int
    kind: Kind = Kind.OTHER


def without_overlaps(parts: Iterable[Kept], over: Sequence[Kept] = ()) -> list[Kept]:
    """Return the parts from left to right, without parts that overlap one that starts before them, or a longer one.

    The parts `over` are kept in any case. They are in order, and none overlaps another.
    """
    found = list(over)
    end, number = 0, 0
    for part in sorted(parts, key=lambda part: (part.start, -part.end)):
        while number < len(over) and over[number].end <= part.start:
            number += 1
        if part.start >= end and not (number < len(over) and over[number].start < part.end):
            found.append(part)
            end = part.end
    return sorted(found) if over else found


def not_within(matches: Iterable[Kept], parts: Sequence[Kept]) -> list[Kept]:
    """Return the matches that lie within none of the parts. Both are in order, and without overlaps."""
    found = []
    number = 0
    for match in matches:
        while number < len(parts) and parts[number].end < match.end:
            number += 1
        if number == len(parts) or parts[number].start > match.start:
            found.append(match)
    return found


def cut_at(parts: Iterable[Kept], places: Sequence[int]) -> list[Kept]:
    """Cut each part at the `places` within it. The places are in order."""
    found = []
    number = 0
    for start, end, kind in parts:
        while number < len(places) and places[number] <= start:
            number += 1
        begin = start
        while number < len(places) and places[number] < end:
            found.append(Kept(begin, places[number], kind))
            begin = places[number]
            number += 1
        found.append(Kept(begin, end, kind))
    return found


_LONGEST_NAME = 128  # characters of a placeholder that is neither a message nor in double braces
_BRACE = re.compile("[{}]")
_NAME = re.compile(rf"[^\s{{}}]{{0,{_LONGEST_NAME}}}")
_MESSAGE = re.compile(
    r"\s{0,8}[\w.-]{1,128}\s{0,8},\s{0,8}"
    r"(?:plural|select|selectordinal|choice|number|date|time|spellout|ordinal|duration)\b"
)
_BEFORE = frozenset("$#%")  # signs that belong to a brace after them
_TEMPLATE_SIGNS = frozenset("%#")  # signs inside of both braces of a template's tag


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
    if end - start > 3 and text[start + 1] == text[end - 1] and text[end - 1] in _TEMPLATE_SIGNS:
        return True
    return _MESSAGE.match(text, start + 1, end) is not None


# The patterns of a request together have at most this many of RE2's instructions. A hostile text takes each of its
# characters through all of them, which takes some microseconds.
_MOST_INSTRUCTIONS = 1000
_RE2_OPTIONS = re2.Options()
_RE2_OPTIONS.log_errors = False
_RE2_OPTIONS.longest_match = True
_RE2_OPTIONS.max_mem = 1 << 20  # bytes that RE2 may take for a pattern

_LINE = re.compile(r"[^\r\n]+")


class PreservePatternError(ValueError):
    """A pattern cannot be used. `number` is its place in the list."""

    def __init__(self, number: int, message: str) -> None:
        self.number = number
        super().__init__(message)


class PreservePatterns:
    """What a request preserves besides what rules find, as regular expressions.

    A pattern matches within a line. Of matches that start together the longest one counts. Empty matches do not count.

    Raises:
        PreservePatternError: a pattern is no regular expression of RE2, matches an empty text, or is too large.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = []
        instructions = 0
        for number, pattern in enumerate(patterns):
            try:
                compiled = re2.compile(pattern, _RE2_OPTIONS)
            except re2.error as error:
                raise PreservePatternError(number, f"is no regular expression of RE2: {_reason(error)}") from None
            if compiled.search("") is not None:
                raise PreservePatternError(number, "matches an empty text")
            instructions += compiled.programsize
            if instructions > _MOST_INSTRUCTIONS:
                message = f"is too large: the patterns have more than {_MOST_INSTRUCTIONS} instructions together"
                raise PreservePatternError(number, message)
            self._patterns.append(compiled)

    def find(self, text: str, budget: Budget = UNLIMITED) -> list[Kept]:
        """Return what the patterns match, from left to right; of matches that overlap, the one that starts first.

        The budget is checked after each match.
        """
        found = []
        for line in _LINE.finditer(text):
            start = line.start()
            for pattern in self._patterns:
                budget.check()
                for match in pattern.finditer(line.group()):
                    budget.check()
                    if match.end() > match.start():
                        found.append(Kept(start + match.start(), start + match.end()))
        return without_overlaps(found)


def _reason(error: Exception) -> str:
    """Return what RE2 says is wrong. It says so in bytes, which quote the pattern."""
    (message,) = error.args
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)


# Nothing is found in a text without one of these signs, without a dot within a word, and without digits beside letters.
# Most texts have none of them, and are searched no further.
_SIGN = re.compile("[{%<&@/\\\\`_#\u2122\u2190-\u2bff\u20e3\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U000fffff]")
_INNER_DOT = re.compile(r"\.[A-Za-z0-9]")
_DIGIT = re.compile("[0-9]")
_CODE = re.compile("[A-Z]-[0-9]{3}|[0-9][a-f]|[a-f][0-9]|[0-9A-F]{16}|[0-9A-Fa-f]{4}:[0-9A-Fa-f]{0,4}:")

# A letter of an address. Scripts without spaces go on after an address as if it had not ended, and so does a word of
# Korean.
_LETTER = rf"(?![{UNSPACED}\p{{Hangul}}\uff00-\uffef])\w"
_ADDRESS = rf"(?:[A-Za-z0-9._~:/?\#\[\]@!$&'()*+,;=%{{}}|\\^-]|{_LETTER})"
# The beginning of a host, with its end if a path follows.
_UNSPACED_LABEL = rf"(?:www\.)?[{UNSPACED}][{UNSPACED}A-Za-z0-9-]{{0,62}}+\.(?:[{UNSPACED}]{{2,4}}+(?=/))?"
_DOMAINS = (
    "com|org|net|edu|gov|mil|int|info|biz|io|dev|app|ai|co|me|tv|cc|eu|de|at|ch|cn|hk|tw|jp|kr|uk|fr|es|it|nl|be|pl|"
    "cz|se|no|dk|fi|pt|ru|ua|br|mx|ca|au|nz|in|sg|za"
)
_FILES = (
    "txt|md|rst|pdf|docx?|xlsx?|pptx?|odt|csv|tsv|json|jsonl|xml|html?|css|js|ts|jsx|tsx|py|ipynb|java|cpp|hpp|rs|go|rb|"
    "php|sh|bat|exe|dll|so|zip|tar|gz|bz2|xz|7z|rar|png|jpe?g|gif|svg|webp|mp[34]|wav|avi|mkv|mov|ya?ml|toml|ini|cfg|"
    "conf|log|sql|db|bin|iso|apk|jar|srt|vtt|po|xliff?"
)
_GROUP = "[0-9A-Fa-f]{1,4}"  # of an IPv6 address
_VALUE = r"""(?:"[^"<]*+"|'[^'<]*+'|[^\s"'<>=`]++)"""
_BARE = "disabled|checked|selected|readonly|required|hidden|async|defer|controls|autoplay|loop|muted|multiple|open"
_ATTRIBUTES = rf"(?:\s++(?:[A-Za-z_:@][\w:.@-]*+\s*+=\s*+{_VALUE}|(?:{_BARE})(?=[\s/>])))*+\s*+"
_FLAGS, _WIDTH = "[-+#0]{0,4}", r"(?:[0-9]{1,4}|\*)?(?:\.(?:[0-9]{1,3}|\*))?"
_PICTURE = (
    r"(?:(?:(?![©®™‼⁉ℹ])\p{Extended_Pictographic}\uFE0F?|[©®™‼⁉ℹ]\uFE0F)"
    r"[\U0001F3FB-\U0001F3FF]?\uFE0F?[\U000E0020-\U000E007F]*+)"
)
_EMOJI = (
    rf"(?:(?:{_PICTURE}(?:\u200D{_PICTURE}|\u200D[\u2640\u2642]\uFE0F?)*+"
    r"|[\U0001F1E6-\U0001F1FF]{2}|[0-9\#*]\uFE0F?\u20E3)[\p{M}\u200D\U0001F3FB-\U0001F3FF]*+)++"
)
_BRACKETS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True)
class _Rule:
    """A rule, which finds nothing in a text without `sign`."""

    sign: str  # what a text has wherever the rule finds something
    pattern: Any  # of `re` or of `regex`
    kind: Kind = Kind.OTHER
    trims: bool = False  # whether a found part is an address, so that signs at its end may belong to the sentence

    def find(self, text: str) -> Iterator[Kept]:
        """Yield the parts that the rule finds."""
        for match in self.pattern.finditer(text):
            start, end = match.span()
            if self.trims:
                end = _trimmed(text, start, end)
            yield Kept(start, end, self.kind)


_RULES = (
    # addresses
    _Rule(
        "://",
        regex.compile(rf"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{{1,30}}+://(?:{_UNSPACED_LABEL})?{_ADDRESS}++"),
        trims=True,
    ),
    _Rule("www.", regex.compile(rf"(?<![A-Za-z0-9+.-])www\.(?=\w){_ADDRESS}++"), trims=True),
    _Rule(
        "@",
        re.compile(
            r"(?<![A-Za-z0-9._%+-])(?:mailto:)?[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9-]{1,63}+(?:\.[A-Za-z0-9-]{1,63}+){1,8}"
        ),
    ),
    _Rule(
        ".",
        regex.compile(
            rf"(?<![A-Za-z0-9_@.-])(?:[A-Za-z0-9-]{{1,63}}+\.){{1,8}}(?:{_DOMAINS})(?![A-Za-z0-9_-])(?!\.[A-Za-z0-9])"
            rf"(?:(?::[0-9]{{1,5}}+)?/{_ADDRESS}*+)?"
        ),
        trims=True,
    ),
    _Rule(".", re.compile(r"(?<![0-9.])(?:[0-9]{1,3}+\.){3}[0-9]{1,3}+(?::[0-9]{1,5}+)?(?!\.?[0-9])")),
    _Rule(  # IPv6. The addresses that are in use begin with four digits, and times do not. 1990::1995 are years.
        ":",
        re.compile(
            r"(?<![A-Za-z0-9:._-])(?=[A-Fa-f:]{0,38}+[0-9])(?![0-9]{4}::(?:[0-9]{4})?(?![0-9A-Fa-f:/]))"
            rf"[0-9A-Fa-f]{{4}}:(?:(?:{_GROUP}:){{0,5}}:(?:{_GROUP}(?::{_GROUP}){{0,5}})?|(?:{_GROUP}:){{6}}{_GROUP})"
            r"(?:/[0-9]{1,3})?(?!\.?[A-Za-z0-9:])"
        ),
    ),
    # tags
    _Rule("<", re.compile(rf"<[A-Za-z][\w:.-]*+{_ATTRIBUTES}>"), Kind.OPENING_TAG),
    _Rule("<", re.compile(r"</[A-Za-z][\w:.-]*+\s*+>"), Kind.CLOSING_TAG),
    _Rule("<", re.compile(rf"<[A-Za-z][\w:.-]*+{_ATTRIBUTES}/>")),
    _Rule("<", re.compile("<!--[^<]*?-->")),
    _Rule("&lt;", re.compile(r"&lt;/?[A-Za-z][\w:.-]{0,63}+\s{0,8}+/?&gt;")),  # an escaped tag without attributes
    _Rule("&", re.compile("&(?:[A-Za-z][A-Za-z0-9]{1,31}+|#[0-9]{1,7}+|#[xX][0-9A-Fa-f]{1,6}+);")),
    # placeholders of printf and its relatives
    _Rule(
        "%",
        re.compile(
            rf"%(?<![0-9%]%)(?:[1-9][0-9]?\$)?{_FLAGS}{_WIDTH}(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGaAcCsSp@]"
            r"(?![A-Za-z0-9_])"
        ),
    ),
    _Rule("%(", re.compile(rf"%\([A-Za-z_][\w.]{{0,63}}+\){_FLAGS}{_WIDTH}[diouxXeEfFgGcrsa]")),
    _Rule("%", re.compile("%%|%[A-Z][A-Z0-9_]{1,63}+%")),
    # code and files
    _Rule("```", re.compile(r"```(?<!````)(?!`)[^`]++```(?!`)")),
    _Rule("`", re.compile(r"`(?<!``)(?!`)(?:[^`\r\n]++|`{2,}+)++`(?!`)|``(?<!```)(?!`)[^`\r\n]++``(?!`)")),
    _Rule(
        ":\\",
        regex.compile(
            rf"""(?<![A-Za-z0-9])[A-Za-z]:\\(?:(?!(?<=[A-Za-z0-9])[{UNSPACED}])[^\s<>:"|?*，。；、！？（）“”‘’])*+"""
        ),
        trims=True,
    ),
    _Rule(
        "/",
        re.compile(
            r"(?<![A-Za-z0-9_/.:*~-])(?:~|\.{1,2})?(?:/[A-Za-z0-9._+@%-]{1,255}+){2,64}+/?"
            r"|(?<![\w/.:*~-])(?:~|\.{1,2})?/[A-Za-z_][A-Za-z0-9._+@%-]{1,255}+/?"
        ),
        trims=True,
    ),
    _Rule(
        ".",
        re.compile(
            r"(?<![A-Za-z0-9_./@-])(?:[A-Za-z0-9_.-]{1,255}+/){0,32}[A-Za-z0-9_-]{1,100}+(?:\.[A-Za-z0-9_-]{1,50}+){0,3}"
            rf"\.(?:{_FILES})(?![A-Za-z0-9_])"
        ),
    ),
    _Rule("_", re.compile(r"(?<![A-Za-z0-9_])_*+[A-Za-z0-9]++(?:_++[A-Za-z0-9]++)++_*+(?:\(\))?")),
    _Rule("__", re.compile(r"(?<![A-Za-z0-9_])__[A-Za-z0-9]++__(?![A-Za-z0-9_])")),
    # letters and digits that only a program reads
    _Rule("-", re.compile("(?<![A-Za-z0-9-])[A-Z]{1,10}+-[0-9]{3,12}(?:-[0-9A-Z]{1,12}+){0,4}(?![A-Za-z0-9])")),
    _Rule("-", re.compile("(?<![A-Za-z0-9-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![A-Za-z0-9])")),
    _Rule("", re.compile("(?<![A-Za-z0-9])(?=[0-9]{0,64}+[a-f])(?=[a-f]{0,64}+[0-9])[0-9a-f]{7,64}+(?![A-Za-z0-9])")),
    _Rule("", re.compile("(?<![A-Za-z0-9])(?=[0-9]{0,64}+[A-F])(?=[A-F]{0,64}+[0-9])[0-9A-F]{16,64}+(?![A-Za-z0-9])")),
    _Rule(".", re.compile(r"(?<![A-Za-z0-9.])[vV][0-9]{1,5}+(?:\.[0-9]{1,5}+){1,5}(?:-[A-Za-z0-9]{1,20}+)?(?!\w)")),
    # Letters alone are a color where they repeat, and three numbers where they are 000: #facade and #bad are words, and
    # #444 is the number of a ticket.
    _Rule(
        "#",
        re.compile(
            r"#(?<![A-Za-z0-9&]#)(?:(?=[A-Fa-f]{0,5}[0-9])[0-9A-Fa-f]{6}|([A-Fa-f]{2})\1\1"
            r"|([A-Fa-f])\2([A-Fa-f])\3([A-Fa-f])\4|000|([A-Fa-f])\5\5"
            "|(?=[0-9]{1,2}[A-Fa-f]|[A-Fa-f]{1,2}[0-9])[0-9A-Fa-f]{3})(?![A-Za-z0-9])"
        ),
    ),
)
_EMOJI_RULE = _Rule("", regex.compile(_EMOJI), Kind.EMOJI)
_EMOJI_SIGN = re.compile("[\u2122\u2190-\u2bff\u20e3\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U000fffff]")


def may_preserve(text: str) -> bool:
    """Whether `untranslatable` may find anything in `text`. This is cheap."""
    return (
        _SIGN.search(text) is not None
        or _INNER_DOT.search(text) is not None
        or (_DIGIT.search(text) is not None and _CODE.search(text) is not None)
    )


def untranslatable(text: str) -> list[Kept]:
    """Return what the rules find in `text`, from left to right.

    Of parts that overlap, the one that starts first is found; of parts that start together, the longest one.
    """
    if not may_preserve(text):
        return []
    found = list(braced(text)) if "{" in text else []
    for rule in _RULES:
        if rule.sign in text:
            found += rule.find(text)
    if _EMOJI_SIGN.search(text):
        found += _EMOJI_RULE.find(text)
    return without_overlaps(found)


def _trimmed(text: str, start: int, end: int) -> int:
    """Return where an address ends, without signs of the sentence. A closing bracket is its own if it has opened it."""
    part = text[start:end]
    if part.count("{") > part.count("}"):  # a placeholder after the address
        end = start + part.index("{")
        part = text[start:end]
    open_brackets = {sign: part.count(sign) for sign in "()[]{}"}
    while end > start + 1:
        last = text[end - 1]
        if last in _BRACKETS:
            if open_brackets[last] <= open_brackets[_BRACKETS[last]]:
                break
            open_brackets[last] -= 1
        elif last not in ".,;:!?'\\*|^":
            break
        end -= 1
    return end
