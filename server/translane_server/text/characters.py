"""Characters of texts: graphemes, the normal form, and spaces between parts.

Such characters are the extended grapheme clusters of Unicode's annex 29, https://www.unicode.org/reports/tr29/.

Normalizing sorts each run of combining characters. This takes the square of the run's length, and holds the interpreter
meanwhile. So a text is normalized in pieces, and a piece may end within a run that is longer than any writing has:
Unicode's Stream-Safe Text Format allows 30 (https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import regex

from translane_server.text.language_tags import language_of, standard_tag

_CHARACTER = regex.compile(r"\X")


def is_boundary(text: str, index: int) -> bool:
    """Whether a character ends before `text[index]`, with 0 ≤ index ≤ len(text)."""
    if not 0 < index < len(text):
        return True
    # The pattern sees the text before its start. The match is the code point before `index`, or both around `index`,
    # so the time does not depend on the length of the character.
    match = _CHARACTER.match(text, index - 1, index + 1)
    return match is not None and match.end() == index


def boundary_before(text: str, index: int) -> int:
    """Return the last boundary at or before `index`."""
    while not is_boundary(text, index):
        index -= 1
    return index


# Length of a piece, and the longest run that is kept together [characters].
_PIECE = 256
_RUN = 128


def composed(text: str) -> str:
    """Return `text` in NFC. A run of more than 128 combining characters may be normalized in several parts."""
    if len(text) <= _PIECE:
        return unicodedata.normalize("NFC", text)
    pieces, start = [], 0
    while start + _PIECE < len(text):
        end = _end(text, start + _PIECE)
        pieces.append(unicodedata.normalize("NFC", text[start:end]))
        start = end
    pieces.append(unicodedata.normalize("NFC", text[start:]))
    return "".join(pieces)


def _end(text: str, most: int) -> int:
    """Return the last place up to `most` where a piece can end; `most` itself if a long run lies before it."""
    places = range(most, most - _RUN, -1)
    return next((place for place in places if not _may_change_with_the_one_before(text[place])), most)


def _may_change_with_the_one_before(character: str) -> bool:
    """Whether NFC may sort or compose `character` with what is before it: a mark, or the rest of a Hangul syllable."""
    return unicodedata.category(character).startswith("M") or "\u1160" <= character <= "\u11ff"


UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Yi}\p{Javanese}"
    r"\p{Balinese}\u30fc\uff70\uff9e\uff9f"
)
"""The letters of scripts that write no spaces between words, for a set of the library `regex`.

U+30FC, U+FF70, U+FF9E and U+FF9F, which change the sound of a letter of Japanese, are of no script of their own.
"""
UNSPACED_LETTER = regex.compile(rf"[{UNSPACED}]")

# Languages without a space between sentences, if they are written in their own script. Languages of South East Asia
# write no space between words, but they write one between sentences.
_UNSPACED_LANGUAGES = frozenset({"zh", "cmn", "yue", "wuu", "gan", "hsn", "lzh", "ja"})
_UNSPACED_WORDS = frozenset({"th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo"})
_UNSPACED_SCRIPTS = frozenset({"hans", "hant", "hani", "hanb", "bopo", "jpan", "hira", "kana", "hrkt"})

_PLAIN_GAPS = frozenset({"", " ", "\u3000"})


def target_gaps(gaps: Sequence[str], target_language: str) -> list[str]:
    """Return the gaps around the sentences of a translation to `target_language`, a BCP-47 tag.

    `gaps` are the n + 1 gaps before, between and after n sentences of the source. A gap between sentences that is empty
    or a single space follows the habit of the target language. All other gaps stay as they are.
    """
    if len(gaps) < 2:
        return list(gaps)
    space = "" if is_unspaced(target_language) else " "
    first, *between, last = gaps
    return [first, *(space if gap in _PLAIN_GAPS else gap for gap in between), last]


def is_unspaced(language: str) -> bool:
    """Whether sentences in `language`, a BCP-47 tag, have no space between them."""
    primary, *others = standard_tag(language).split("-")
    script = next((subtag for subtag in others if len(subtag) == 4 and subtag.isalpha()), None)
    return primary in _UNSPACED_LANGUAGES if script is None else script in _UNSPACED_SCRIPTS


def spaces_words(language: str) -> bool:
    """Whether `language`, a BCP-47 tag, has spaces between words."""
    return not is_unspaced(language) and language_of(language) not in _UNSPACED_WORDS
