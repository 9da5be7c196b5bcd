"""Matches a request's language with a model's.

Requests name languages by BCP-47 tags. Models use BCP-47 tags, ISO 639-3 codes with scripts (``zho_Hans``), or locales
(``pt_XX``). This module brings all of them to one form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

UNDETERMINED = "und"  # BCP-47's tag for an unknown language
AUTO = "auto"  # no tag: the source language of a translation, which is found out

# A longer tag means nothing: dropping its subtags one by one would take long. RFC 5646, section 4.4.1, finds 35 enough
# [characters].
LONGEST_TAG = 100

_SCRIPT_LENGTH = 4

# What may be sent for a language and names none, and what it means.
_NO_LANGUAGES: Mapping[str, str] = {
    UNDETERMINED: "an undetermined language",
    "mul": "several languages",
    "mis": "a language without a code",
    "zxx": "no language at all",
    AUTO: "a source language that is found out, for translations alone",
}
_PRIVATE = re.compile("q[a-t][a-z]|x", re.ASCII)  # qaa to qtz, and x-…

# Codes of languages, with the tag of each language if it differs. Models name a macrolanguage by the code of its most
# spoken language, so such a code has the tag of the macrolanguage: arb is Standard Arabic, ar is Arabic.
#
# The library langcodes has such a table, too, and a test compares the two. The server does without it: it is loaded in
# 80 ms, and its matching takes what `lookup` refuses, such as en-GB for en-US, or another script.
_TAGS: Mapping[str, str] = dict(
    re.findall(
        r"(\w+):(\w+)",
        """
    aar:aa abk:ab afr:af aka:ak als:sq amh:am ara:ar arb:ar arg:an asm:as ava:av ayr:ay aym:ay aze:az azj:az bak:ba
    bam:bm bel:be ben:bn bis:bi bod:bo bos:bs bre:br bul:bg cat:ca ces:cs cha:ch che:ce chv:cv cmn:zh cor:kw cos:co
    cym:cy dan:da deu:de div:dv dzo:dz ekk:et ell:el eng:en epo:eo est:et eus:eu ewe:ee fao:fo fas:fa fij:fj fil:tl
    fin:fi fra:fr fry:fy ful:ff fuv:ff gaz:om gla:gd gle:ga glg:gl glv:gv grn:gn guj:gu hat:ht hau:ha heb:he hin:hi
    hmo:ho hrv:hr hun:hu hye:hy ibo:ig ido:io iku:iu ina:ia ind:id isl:is ita:it iw:he in:id jav:jv jpn:ja kal:kl
    kan:kn kas:ks kat:ka kau:kr kaz:kk khk:mn khm:km kik:ki kin:rw kir:ky kmr:ku knc:kr kon:kg kor:ko kur:ku lao:lo
    lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lug:lg lvs:lv mal:ml mar:mr mkd:mk mlg:mg mlt:mt mon:mn mri:mi msa:ms
    mya:my nau:na nav:nv nep:ne nld:nl nno:nn no:nb nob:nb nor:nb npi:ne ns:nso nya:ny oci:oc ori:or orm:om ory:or
    oss:os pan:pa pbt:ps pes:fa plt:mg pol:pl por:pt pus:ps que:qu quy:qu roh:rm ron:ro run:rn rus:ru sag:sg san:sa
    sin:si slk:sk slv:sl sme:se smo:sm sna:sn snd:sd som:so sot:st spa:es sqi:sq srd:sc srp:sr ssw:ss sun:su swa:sw
    swe:sv swh:sw tah:ty tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti ton:to tsn:tn tso:ts tuk:tk tur:tr twi:tw
    uig:ug ukr:uk urd:ur uzb:uz uzn:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh ydd:yi yid:yi yor:yo zho:zh zsm:ms
    zul:zu

    ave:ae chu:cu cre:cr her:hz iii:ii ile:ie ipk:ik kom:kv kua:kj lub:lu mah:mh nbl:nr nde:nd ndo:ng oji:oj pli:pi
    zha:za gug:gn

    alb:sq arm:hy baq:eu bur:my chi:zh cze:cs dut:nl fre:fr geo:ka ger:de gre:el ice:is mac:mk mao:mi may:ms per:fa
    rum:ro slo:sk tib:bo wel:cy
    """,
    )
)

# The script of Chinese by region, for tags that name no script (Unicode's likely subtags).
_CHINESE_SCRIPTS = {"tw": "hant", "hk": "hant", "mo": "hant"}
_CHINESE_SCRIPT = "hans"


def lookup(wanted: str, available: Sequence[str]) -> str | None:
    """Return the tag in `available` that `wanted` means; None if there is none.

    The first rule is the lookup of RFC 4647, section 3.4: subtags are dropped from the end until a tag matches, so that
    ``zh-Hant-TW`` finds ``zh-Hant`` before ``zh``. The second rule takes the only tag of the same language whose script
    and region do not differ from those of `wanted`: ``en`` finds ``eng_Latn``. The third rule takes ``und``, which may
    be any language. Case does not matter. A tag of more than 100 characters means nothing.
    """
    if len(wanted) > LONGEST_TAG:
        return None
    known = _known(tuple(available))
    for form, tags in ((_subtags, known.by_subtags), (standard_tag, known.by_standard_tag)):
        for shorter in _shortened(form(wanted)):
            if match := tags.get(shorter):
                return match
    language, script, region = _parts(standard_tag(wanted))
    candidates = [
        tag
        for tag, known_script, known_region in known.by_language.get(language, ())
        if not script or not known_script or script == known_script
        if not region or not known_region or region == known_region
    ]
    if len(candidates) == 1:
        return candidates[0]
    return known.by_subtags.get(UNDETERMINED) if wanted else None


def is_auto(tag: str) -> bool:
    """Whether the language of a request is to be found out."""
    return len(tag) == len(AUTO) and tag.lower() == AUTO


def meaning(tag: str) -> str | None:
    """Return what a tag means that names no language, such as ``und`` or ``x-klingon``; None if it may name one."""
    language = _subtags(tag).partition("-")[0]
    return "a language for private use" if _PRIVATE.fullmatch(language) else _NO_LANGUAGES.get(language)


def standard_tag(code: str) -> str:
    """Return the BCP-47 tag, in lower case, of a model's or a request's language.

    The region of a code such as ``pt_XX`` is left out, because models with such codes have one code for each language.
    """
    language, _, rest = _subtags(code).partition("-")
    tag = "-".join([_TAGS.get(language, language), *([rest] if rest else [])])
    if "_" not in code:
        return tag
    language, script, _ = _parts(tag)
    return "-".join([language, *([script] if script else [])])


def language_of(tag: str) -> str:
    """Return the language of a tag, without script and region, in the shortest code of ISO 639."""
    return standard_tag(tag).partition("-")[0]


@dataclass(frozen=True)
class _Known:
    """A model's tags, by the three keys of a lookup. Tags by language come with their script and region."""

    by_subtags: Mapping[str, str]
    by_standard_tag: Mapping[str, str]
    by_language: Mapping[str, Sequence[tuple[str, str, str]]]


@lru_cache(1024)  # both sides of all models
def _known(available: tuple[str, ...]) -> _Known:
    by_language: dict[str, list[tuple[str, str, str]]] = {}
    for tag in available:
        language, script, region = _parts(standard_tag(tag))
        by_language.setdefault(language, []).append((tag, script, region))
    first = available[::-1]  # if several tags mean the same, the first tag wins
    return _Known({_subtags(tag): tag for tag in first}, {standard_tag(tag): tag for tag in first}, by_language)


def _subtags(tag: str) -> str:
    return tag.lower().replace("_", "-")


def _shortened(tag: str) -> Iterator[str]:
    subtags = tag.split("-")
    while subtags:
        yield "-".join(subtags)
        subtags.pop()
        if subtags and len(subtags[-1]) == 1:  # a singleton only introduces the subtags after it
            subtags.pop()


def _parts(tag: str) -> tuple[str, str, str]:
    """Return language, script and region of a standard tag; a part is empty if the tag does not name it."""
    language, *rest = tag.split("-")
    script = next((subtag for subtag in rest[:1] if len(subtag) == _SCRIPT_LENGTH), "")
    region = next((subtag for subtag in rest[bool(script) :][:1] if 1 < len(subtag) < _SCRIPT_LENGTH), "")
    if language == "zh" and not script:
        script = _CHINESE_SCRIPTS.get(region, _CHINESE_SCRIPT)
    return language, script, region
