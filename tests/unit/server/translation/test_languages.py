"""What languages put around sources and force decoders to generate; and segments of texts."""

import pytest

from fakes.backend import EOS
from fakes.serving import FakeTokenizer, make_manifest
from translane.options import Format, checked_options
from translane.requests import TranslationRequest
from translane_server.bundle.manifest import Languages, LanguageTemplates, LanguageTokens
from translane_server.core.errors import InvalidRequestError
from translane_server.translation.languages import LanguagePairs
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.reader import TranslateReader

MANY = Languages(
    source=("eng_Latn", "zho_Hans", "zho_Hant"),
    target=("eng_Latn", "fra_Latn"),
    templates=LanguageTemplates(
        source={
            "eng_Latn": LanguageTokens(source_prefix=(91,)),
            "zho_Hans": LanguageTokens(source_prefix=(92,), source_suffix=(93,)),
        },
        target={"eng_Latn": LanguageTokens(forced=(94, 95)), "fra_Latn": LanguageTokens(source_prefix=(96,))},
    ),
)
PREFIXES = Languages(
    source=("en", "de"),
    target=("de", "fr"),
    templates=LanguageTemplates(text_prefix="unused", pair_prefixes={"en": {"de": "G: ", "fr": "F: "}}),
)
A, B = (ids[0] for ids in FakeTokenizer().encode(["a", "b"]))


def find(languages, source, target):
    return LanguagePairs(languages, FakeTokenizer()).find(source, target)


@pytest.mark.parametrize(
    ("source", "target", "ids", "forced"),
    [
        ("en", "en-GB", [91, A, EOS], (94, 95)),
        ("zho_Hans", "fra_Latn", [92, 96, A, EOS, 93], ()),
        ("zh-TW", "en", [A, EOS], (94, 95)),
    ],
)
def test_languages_put_tokens_around_sources_and_before_targets(source, target, ids, forced):
    pair, wrong = find(MANY, source, target)
    assert not wrong
    assert pair.encode(["a", " ", ""]) == [ids, [], []]
    assert pair.forced_ids == forced
    assert pair.source_spans("a") == [(0, 1) if id_ == A else None for id_ in ids]
    assert pair.source_spans(" ") == []
    assert pair.tokenizer.encode_target(["ab"]) == FakeTokenizer().encode_target(["ab"])


def test_a_pair_has_its_own_text_before_sources():
    pair, wrong = find(PREFIXES, "en", "fr")
    assert not wrong
    assert pair.encode(["ab"]) == FakeTokenizer().encode(["F: ab"])
    assert pair.source_spans("ab") == [None, None, None, (0, 1), (1, 2), None]
    assert LanguagePairs(PREFIXES, FakeTokenizer()).default().target == "de"


def test_pairs_that_the_model_does_not_have():
    _, wrong = find(PREFIXES, "de", "fr")
    assert [(each.field, each.description) for each in wrong] == [
        ("target_language", "the model does not translate de to fr; it does en to de, en to fr")
    ]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("und", "fr", "'und' means an undetermined language; send a language of the model (en, de) or \"auto\""),
        ("UND-Latn", "fr", "'UND-Latn' means an undetermined language; send"),
        ("mis", "de", "'mis' means a language without a code; send"),
        ("zxx", "de", "'zxx' means no language at all; send"),
        ("qaa", "de", "'qaa' means a language for private use; send"),
        ("qtz-Latn", "de", "'qtz-Latn' means a language for private use; send"),
        ("qua", "de", "'qua' is not"),  # it is Quechua
        ("x-elvish", "de", "'x-elvish' means a language for private use; send a language of the model (en, de) or"),
        ("en", "mul", "'mul' means several languages; send a language of the model (de, fr)"),
        ("en", "auto", "'auto' means a source language that is found out, for translations alone; send a language of"),
        ("AUTO", "de", "'AUTO' means a source language that is found out, for translations alone; send a language of"),
    ],
)
def test_tags_that_name_no_language_are_explained(source, target, expected):
    (violation,) = find(PREFIXES, source, target)[1]
    assert violation.description.startswith(expected)
    assert violation.field == ("target_language" if source == "en" else "source_language")


def prepared(*texts, most_tokens=32, format_=Format.TEXT, **options):
    limits = RequestLimits(8, 4, TokenLimits(most_tokens, 24, 20), max_beam_size=6)
    reader = TranslateReader(make_manifest(source_languages=["en"]), FakeTokenizer(), limits)
    request = TranslationRequest(texts, options=checked_options(options), format=format_)
    reader.check(request)
    return reader.read(request)


def violations(*texts, **options):
    with pytest.raises(InvalidRequestError) as caught:
        prepared(*texts, **options)
    return {violation.field: violation.description for violation in caught.value.violations}


def marks(text, **options):
    """What is taken out of each sentence of a text."""
    return [
        [(mark.opening, mark.closing) for mark in (source.marked.marks if source.marked else ())]
        for source in prepared(text, **options).texts[0].segments
    ]


def test_all_texts_of_a_request_share_a_limit_of_sentences():
    message = "has too many sentences, at most 4 are accepted in a request"
    assert violations("A! B!", "C! D! E!", "F!") == {"texts[1]": message}
    assert violations("A!\n" * 5) == {"texts[0]": message}
    assert violations("x", "A! B! C! D!") == {"texts[1]": message}


def test_a_character_of_too_many_tokens_is_refused():
    found = violations("fine", "x e" + "\u0301" * 9, most_tokens=8)
    assert found == {"texts[1]": "has a character of 11 tokens, at most 8 are accepted"}


@pytest.mark.parametrize(
    ("text", "left", "spaces"),
    [
        ("a {x} b", "a b", (True, True)),
        ("a {x}, b", "a, b", (True, False)),
        ("{x} a", "a", (False, True)),
        ("a {x}", "a", (True, False)),
        ("({x} a)", "(a)", (False, True)),
        ("a{x}b", "ab", (False, False)),
        ("北京{x}。", "北京。", (False, False)),
    ],
)
def test_what_is_kept_is_taken_out_with_the_white_space_that_it_leaves_double(text, left, spaces):
    (found,) = prepared(text).texts[0].segments
    (mark,) = found.marked.marks
    assert found.text == left
    assert (mark.space_before, mark.space_after) == spaces


def test_tags_of_a_text_are_pairs_where_they_can_be():
    assert marks("a <b>c <i>d</i></b> e <br> f</u>") == [[("<b>", "</b>"), ("<i>", "</i>"), ("<br>", ""), ("</u>", "")]]
    assert marks("a <b>c <i>d</b> e</i>") == [[("<b>", "</b>"), ("<i>", ""), ("</i>", "")]]


def test_a_closing_tag_and_an_emoji_belong_to_the_sentence_before_them():
    assert marks("<b>One!</b> Two! 🙂 Three!") == [[("<b>", "</b>")], [("🙂", "")], []]
    assert marks("One! <b>Two! Three!</b>") == [[], [("<b>", "")], [("</b>", "")]]
    assert marks("<b>One!</b> Two!🙂 Three!") == [[("<b>", "</b>")], [("🙂", "")], []]


@pytest.mark.parametrize(
    ("format_", "source"),
    [
        (Format.XLIFF, '<x id="1"/> {name}'),
        (Format.XLIFF, '<g id="1">{a}</g> <x id="2"/> <x id="3"/>{b}'),
        (Format.HTML, "<p><code>ls</code> {file}</p>"),
        (Format.MARKDOWN, "`x` https://a.b/c"),
    ],
)
def test_spaces_stay_between_tags_and_what_is_kept(format_, source):
    (text,) = prepared(source, format_=format_).texts
    assert not text.segments
    assert text.join([], "en") == source


def test_the_callers_patterns_come_first():
    assert marks("a x{y}z b", preserve=["x.y"]) == [[("x{y", "")]]
    assert marks("a {y1} 1 b", preserve=["[0-9]"]) == [[("{y1}", ""), ("1", "")]]
    assert marks("a {y} b", preserve=["[yb]+"], preserve_untranslatable=False) == [[("y", ""), ("b", "")]]
