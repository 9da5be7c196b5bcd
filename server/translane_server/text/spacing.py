"""Which scripts and languages write spaces between words and between sentences."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from translane_server.text.language_tags import language_of, standard_tag

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

    A gap between sentences that is empty or a single space follows the habit of the target language. All other gaps
    stay as they are.

    Args:
        gaps: the n + 1 gaps before, between and after n sentences of the source.
        target_language: a BCP-47 tag.
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
