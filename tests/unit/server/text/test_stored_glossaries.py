"""Which stored glossary a request gets."""

import pytest

from translane_server.text.glossaries import StoredGlossaries, StoredGlossary
from translane_server.text.glossary import Glossary

STORED = StoredGlossaries(
    StoredGlossary(source, target, Glossary(name=name))
    for name, source, target in (
        ("medical", "de", "en"),
        ("medical", "en", "de"),
        ("medical", "de", "pt-BR"),
        ("medical", "de", "pt"),
        ("law", "de", "en"),
        ("any", "und", "en"),
    )
)


@pytest.mark.parametrize(
    ("name", "source", "target", "there"),
    [
        ("medical", "de", "en", True), ("medical", "de-AT", "en-GB", True), ("medical", "deu_Latn", "eng_Latn", True),
        ("medical", "fr", "en", False), ("Medical", "de", "en", False), ("law", "en", "de", False),
        ("any", "xx", "en", True), ("", "de", "en", False),
    ],
)  # fmt: skip
def test_a_glossary_is_found_by_its_name_and_languages(name, source, target, there):
    assert (STORED.find(name, source, target) is not None) == there


def test_the_nearest_language_is_found():
    of_brazil = STORED.find("medical", "de", "pt-BR")
    assert of_brazil is not None
    assert STORED.find("medical", "de", "pt-PT") not in (None, of_brazil)


@pytest.mark.parametrize(
    ("name", "pair", "told"),
    [
        ("x", ("de", "en"), "'x' is not a glossary of this server; for de to en there is any, law, medical"),
        ("law", ("en", "de"), "'law' is a glossary for de to en, and not for en to de"),
        ("x", ("fr", "it"), "'x' is not a glossary of this server, which has none for fr to it"),
        ("a\nb", ("fr", "it"), r"'a\nb' is not a glossary of this server, which has none for fr to it"),
    ],
)
def test_what_is_told_of_a_glossary_that_is_not_there(name, pair, told):
    assert STORED.problem(name, *pair) == told


def test_a_server_may_store_none():
    assert StoredGlossaries().problem("x", "de", "en") == "this server stores no glossaries"
    assert StoredGlossaries().names(("de",), ("en",)) == ()
    assert len(STORED) == 6


def test_the_names_for_a_model():
    assert STORED.names(("deu_Latn", "fra_Latn"), ("eng_Latn",)) == ("any", "law", "medical")
    assert STORED.names(("und",), ("und",)) == ("any", "law", "medical")
    assert STORED.names(("fr",), ("en",)) == ("any",)
    assert STORED.names(("fr",), ("it",)) == ()
