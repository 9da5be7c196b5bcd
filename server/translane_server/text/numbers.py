"""Finds the numbers of a sentence that its translation certainly lacks.

Much that looks like a lost number is none: people write words for small and round numbers, group digits in other ways,
and make 35,000 of 3.5万. So only numbers count that nobody writes otherwise.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Set

from translane_server.text.language_tags import language_of

_STAND_IN = re.compile("⟨[0-9]⟩")
_NARROW = str.maketrans({chr(0xFEE0 + ord(sign)): sign for sign in string.digits + string.ascii_letters})
WIDE_POINT = "．(?<=[０-９]．)(?=[０-９])"
"""Pattern of a point within a number in wide digits."""
# A wide comma or point is one of a number only within wide digits. Elsewhere it is one of the sentence:
# 在1234，5678之间. A wide colon is one of a time, 15：30, where two digits follow it.
_WIDE_SIGN = re.compile(
    f"{WIDE_POINT}|，(?<=[０-９]，)(?=[０-９]{{3}}(?![０-９]))|：(?<=[0-9０-９]：)(?=[0-9０-９]{{2}}(?![0-9０-９]))"
)
_NUMBER = re.compile("[0-9]{1,3}(?:[,.'’\u00a0\u202f ][0-9]{3})+(?![0-9])(?:[.,][0-9]+)?|[0-9]+(?:[.,][0-9]+)?")
UNIT = "(?:[万萬亿億兆千百十만억천백월月号號点點일]|日(?![元圆圓本]))"
"""Pattern of what makes another number of a number before it: 3.5万 is 35,000. But 500日元 is 500 yen."""

# What, right before or after a number, makes another number of it, or a word that people write otherwise: 3.5万, 12月,
# 15:30, 第25, 1.2.3, A4, 25th.
_BEFORE = re.compile(r"[\w.,:/第#+-]$", re.ASCII)
_AFTER = re.compile(rf"[.,:/-]*[0-9A-Za-z]|\s*(?:{UNIT}|[時时分世年])", re.ASCII)
_LONGEST = 20  # characters of a number

# Languages that write 1.000,5 for 1,000.5.
_DECIMAL_COMMA = re.compile(
    "(af|az|be|bg|bs|ca|cs|da|de|el|es|et|eu|fi|fo|fr|gl|hr|hu|hy|id|is|it|ka|kk|lt|lv|mk|nb|nl|nn|no|pl|pt|ro|ru|sk|sl|"
    "sq|sr|sv|tr|uk|uz|vi)"
)


def same_separators(one: str, other: str) -> bool:
    """Whether two languages, BCP-47 tags, write 1,000.5 in the same way."""
    first, second = (_DECIMAL_COMMA.fullmatch(language_of(tag)) for tag in (one, other))
    return (first is None) == (second is None)


def certain_numbers(source: str) -> dict[str, Set[str]]:
    """Return the numbers that a translation of `source` has in digits, each with what it may mean.

    These are numbers with decimals, and numbers of three digits or more but whole hundreds. A year, 2024年, is one.
    """
    text = _plain(source)
    found = {}
    for match in _NUMBER.finditer(text):
        before, after = text[max(0, match.start() - 1) : match.start()], text[match.end() : match.end() + 8]
        year = after.startswith("年") and len(match.group()) == 4 and match.group().isdigit()
        if _BEFORE.search(before) or (_AFTER.match(after) and not year) or len(match.group()) > _LONGEST:
            continue
        values = _values(match.group())
        if not any(float(value) % 100 == 0 or (float(value) < 100 and "." not in value) for value in values):
            found[match.group()] = values
    return found


def missing_numbers(expected: Mapping[str, Set[str]], translation: str) -> list[str]:
    """Return those of the `expected` numbers that no number of the translation means."""
    if not expected:
        return []
    found = (match.group() for match in _NUMBER.finditer(_plain(translation)))
    there = {value for number in found if len(number) <= 2 * _LONGEST for value in _values(number)}
    return [number for number, values in expected.items() if there.isdisjoint(values)]


def written_for(number: str, source_language: str, target_language: str) -> str:
    """Return a number of the source language as the target language writes it."""
    if same_separators(source_language, target_language):
        return number
    return number.translate(str.maketrans(",.", ".,"))


def narrowed(text: str) -> str:
    """Return a text with ASCII's digits, letters and signs of numbers in the place of wide ones. Its length stays.

    Unicode's own normalization would make 108 of 10⁸, and takes quadratic time for combining marks.
    """
    return _WIDE_SIGN.sub(lambda sign: chr(ord(sign[0]) - 0xFEE0), text).translate(_NARROW)


def _plain(text: str) -> str:
    return _STAND_IN.sub(" ", narrowed(text))


def _values(number: str) -> Set[str]:
    """Return what a number may mean: 1,000 is a thousand, or one with three decimals."""
    digits = re.sub("[^0-9]", "", number)
    values = set()
    last = max(number.rfind("."), number.rfind(","))
    if last >= 0:
        whole = re.sub("[^0-9]", "", number[:last])
        values.add(f"{int(whole)}.{number[last + 1 :].rstrip('0')}".rstrip("."))
    if last < 0 or len(number) - last - 1 == 3:
        values.add(str(int(digits)))
    return values
