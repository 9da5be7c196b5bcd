"""Finds by rules what of a text is not translated: placeholders, tags, addresses, code and emoji.

The rules look for what nobody writes as a word of a sentence. "100 %", "and/or" and "COVID-19" are words, and are
translated. All rules take time in proportion to the length of the text: no repetition can be divided in two ways, and a
rule that begins with a run of characters begins only where the run does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import regex

from translane_server.text.braces import braced
from translane_server.text.kept import Kept, Kind, without_overlaps
from translane_server.text.spacing import UNSPACED

# Nothing is found in a text without one of these signs, without a dot within a word, and without digits beside letters.
# Most texts have none of them, and are searched no further.
_SIGN = re.compile("[{%<&@/\\\\`_#\u2122\u2190-\u2bff\u20e3\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U000fffff]")
_INNER_DOT = re.compile(r"\.[A-Za-z0-9]")
_DIGIT = re.compile("[0-9]")
_CODE = re.compile("[A-Z]-[0-9]{3}|[0-9][a-f]|[a-f][0-9]")

# A letter of an address. Scripts without spaces go on after an address as if it had not ended, and so does a word of
# Korean.
_LETTER = rf"(?![{UNSPACED}\p{{Hangul}}\uff00-\uffef])\w"
_ADDRESS = rf"(?:[A-Za-z0-9._~:/?\#\[\]@!$&'()*+,;=%{{}}|\\^-]|{_LETTER})"
_DOMAINS = (
    "com|org|net|edu|gov|mil|int|info|biz|io|dev|app|ai|co|me|tv|cc|eu|de|at|ch|cn|hk|tw|jp|kr|uk|fr|es|it|nl|be|pl|"
    "cz|se|no|dk|fi|pt|ru|ua|br|mx|ca|au|nz|in|sg|za"
)
_FILES = (
    "txt|md|rst|pdf|docx?|xlsx?|pptx?|odt|csv|tsv|json|jsonl|xml|html?|css|js|ts|jsx|tsx|py|ipynb|java|cpp|hpp|rs|go|rb|"
    "php|sh|bat|exe|dll|so|zip|tar|gz|bz2|xz|7z|rar|png|jpe?g|gif|svg|webp|mp[34]|wav|avi|mkv|mov|ya?ml|toml|ini|cfg|"
    "conf|log|sql|db|bin|iso|apk|jar|srt|vtt|po|xliff?"
)
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
    """A rule, which finds nothing in a text without `sign`.

    Attributes:
        sign: what a text has wherever the rule finds something.
        pattern: what the rule finds.
        kind: what the found parts are.
        trims: whether a found part is an address, so that signs at its end may belong to the sentence.
    """

    sign: str
    pattern: Any  # of `re` or of `regex`
    kind: Kind = Kind.OTHER
    trims: bool = False

    def find(self, text: str) -> Iterator[Kept]:
        """Yield the parts that the rule finds."""
        for match in self.pattern.finditer(text):
            start, end = match.span()
            if self.trims:
                end = _trimmed(text, start, end)
            yield Kept(start, end, self.kind)


_RULES = (
    # addresses
    _Rule("://", regex.compile(rf"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{{1,30}}+://{_ADDRESS}++"), trims=True),
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
    _Rule("`", re.compile(r"`(?<!``)(?!`)[^`\r\n]++`(?!`)|``(?<!```)(?!`)[^`\r\n]++``(?!`)")),
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
    _Rule(
        "-",
        re.compile(
            "(?<![A-Za-z0-9-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![A-Za-z0-9])",
        ),
    ),
    _Rule("", re.compile("(?<![A-Za-z0-9])(?=[0-9]{0,64}+[a-f])(?=[a-f]{0,64}+[0-9])[0-9a-f]{7,64}+(?![A-Za-z0-9])")),
    _Rule(".", re.compile(r"(?<![A-Za-z0-9.])[vV][0-9]{1,5}+(?:\.[0-9]{1,5}+){1,5}(?:-[A-Za-z0-9]{1,20}+)?(?!\w)")),
    _Rule("#", re.compile("#(?<![A-Za-z0-9&]#)(?=[A-Fa-f]{0,6}+[0-9])[0-9A-Fa-f]{6}(?![A-Za-z0-9])")),
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
