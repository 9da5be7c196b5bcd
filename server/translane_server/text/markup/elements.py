"""What kinds of elements HTML has: https://html.spec.whatwg.org/multipage/indices.html#elements-3."""

from __future__ import annotations

from collections.abc import Mapping


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


VOID = _names("area base basefont bgsound br col embed frame hr img input link meta param source track wbr")

# A line of text ends before and after these. An element that is not here, such as a custom one, stands in a line.
BLOCKS = _names(
    "address applet article aside audio blockquote body br button canvas caption center col colgroup datalist dd "
    "details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header "
    "hgroup hr html iframe legend li listing main marquee menu nav noembed noframes noscript object ol optgroup option "
    "p plaintext pre script search section select style summary table tbody td template textarea tfoot th thead title "
    "tr ul video xmp"
)

# What is in these is no HTML, so that no text can be written there. In <noscript> it is none for browsers with scripts.
RAW = _names("iframe noembed noframes noscript plaintext script style xmp")
# What is in these is no language, or is read as it is.
PROTECTED = RAW | _names("code kbd listing math pre rp rt rtc samp svg textarea var")
# A picture beside a text and the reading above a word are no words of a sentence.
NO_WORDS = _names("rp rt rtc svg")

FOREIGN = frozenset(["svg", "math"])
# HTML is within these, although they are within a picture or a formula.
HTML_WITHIN_FOREIGN = _names("foreignobject desc title mi mo mn ms mtext annotation-xml")
# The start tag of one of these ends a picture or a formula.
ENDS_FOREIGN = _names(
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta "
    "nobr ol p pre ruby s small span strike strong sub sup table tt u ul var"
)
# A link is never within another link.
NOT_WITHIN_ITSELF = frozenset(["a", "nobr"])

_CELLS = frozenset(["td", "th"])
_ROWS = _CELLS | {"tr"}
_GROUPS = _ROWS | {"tbody", "thead", "tfoot", "caption", "colgroup"}
_PARAGRAPH = (frozenset(["p"]), _names("applet button caption html marquee object table td template th"))
# A start tag ends these elements, as far as they are not beyond those.
ENDED_BY: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    **dict.fromkeys(
        _names(
            "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form "
            "h1 h2 h3 h4 h5 h6 header hgroup hr listing main menu nav ol p plaintext pre search section summary table "
            "ul xmp"
        ),
        _PARAGRAPH,
    ),
    "li": (frozenset(["li", "p"]), frozenset(["ul", "ol", "menu", "dir", "table", "td", "th"])),
    **dict.fromkeys(["dt", "dd"], (frozenset(["dt", "dd", "p"]), frozenset(["dl", "table", "td", "th"]))),
    **dict.fromkeys(["option", "optgroup"], (frozenset(["option"]), BLOCKS - {"option"})),
    **dict.fromkeys(_CELLS, (_CELLS, frozenset(["table", "tr"]))),
    "tr": (_ROWS, frozenset(["table", "tbody", "thead", "tfoot"])),
    **dict.fromkeys(_GROUPS - _ROWS, (_GROUPS, frozenset(["table"]))),
    **dict.fromkeys(["rt", "rp"], (frozenset(["rt", "rp"]), frozenset(["ruby"]))),
}
