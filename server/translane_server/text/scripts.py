"""Which letters the languages of a translation are written with."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache
from typing import Any

import regex

from translane_server.text.language_tags import standard_tag

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

    They are of the source's scripts, and of no script of the target. Who reads any script knows Latin letters.

    Args:
        source_language: a BCP-47 tag.
        target_language: a BCP-47 tag.
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
