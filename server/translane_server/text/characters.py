"""Characters of texts: graphemes, the normal form, spaces between parts, and the letters that languages have.

Such characters are the extended grapheme clusters of Unicode's annex 29, https://www.unicode.org/reports/tr29/.

Normalizing sorts each run of combining characters. This takes the square of the run's length, and holds the interpreter
meanwhile. So a text is normalized in pieces, and a piece may end within a run that is longer than any writing has:
Unicode's Stream-Safe Text Format allows 30 (https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Any

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


# Scripts by their names in Unicode, each with the languages that are written in it, and with the tags of scripts (ISO
# 15924) that it is part of. Languages that are not here are taken for those of Latin letters.
_WRITTEN_IN = {
    "Arabic": "ar ckb fa ks prs ps sd ug ur arab",
    "Armenian": "hy armn",
    "Bengali": "as bn mni beng",
    "Bopomofo": "bopo hanb",
    "Cyrillic": "ab ba be bg ce cv kk kv ky mk mn os ru sah sr tg tt tyv udm uk cyrl",
    "Devanagari": "awa bho hi hne mag mai mr ne sa deva",
    "Ethiopic": "am ti ethi",
    "Georgian": "ka geor",
    "Greek": "el grek",
    "Gujarati": "gu gujr",
    "Gurmukhi": "pa guru",
    "Han": "gan hsn ja lzh wuu yue zh hanb hani hans hant jpan kore",
    "Hangul": "ko hang kore",
    "Hebrew": "he yi hebr",
    "Hiragana": "ja hira hrkt jpan",
    "Kannada": "kn knda",
    "Katakana": "ja hrkt jpan kana",
    "Khmer": "km khmr",
    "Lao": "lo laoo",
    "Malayalam": "ml mlym",
    "Myanmar": "my shn mymr",
    "Oriya": "or orya",
    "Sinhala": "si sinh",
    "Tamil": "ta taml",
    "Telugu": "te telu",
    "Thai": "th thai",
    "Tibetan": "bo dz tibt",
}


@lru_cache
def untold_letters(source_language: str, target_language: str) -> Any:
    """Return a pattern for letters that tell readers of the target nothing; None if there are none.

    They are of the source's scripts, and of no script of the target. Who reads any script knows Latin letters. The
    languages are BCP-47 tags.
    """
    scripts = sorted(_scripts(source_language) - _scripts(target_language))
    return regex.compile("[" + "".join(rf"\p{{{script}}}" for script in scripts) + "]") if scripts else None


def _scripts(language: str) -> Set[str]:
    primary, *others = standard_tag(language).split("-")
    script = next((subtag for subtag in others[:1] if len(subtag) == 4), primary)
    return {name for name, written in _WRITTEN_IN.items() if script in written.split()}


def has_latin_letters(language: str) -> bool:
    """Whether `language`, a BCP-47 tag, is written in Latin letters. Unknown languages are taken for such ones."""
    return not _scripts(language)
