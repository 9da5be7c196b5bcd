"""Which models translate a pair of languages, alone or one after the other, and what can be translated to a target."""

from contextlib import suppress

import pytest

from fakes.models import Model, models_of, never
from fakes.serving import make_manifest
from translane_server.core.errors import ModelNotFoundError
from translane_server.core.terminal import listed
from translane_server.models import choice as choice_module
from translane_server.models.choice import Choice, with_pair
from translane_server.models.registry import Registry
from translane_server.text import language_tags
from translane_server.text.language_tags import lookup

MANY = make_manifest(source_languages=("eng_Latn", "zho_Hans"), target_languages=("fra_Latn", "deu_Latn")).languages
ONE = make_manifest().languages
PREFIXED = make_manifest(
    source_languages=("en", "de"),
    target_languages=("de", "en"),
    language_templates={"pair_prefixes": {"en": {"de": "a: "}, "de": {"en": "b: "}}},
).languages


@pytest.mark.parametrize(
    ("languages", "source", "target", "expected"),
    [
        (ONE, "", "", True),
        (ONE, "zh-CN", "en-GB", True),
        (ONE, "", "en", True),
        (ONE, "de", "", False),
        (MANY, "en", "fr", True),
        (MANY, "zh", "de-AT", True),
        (MANY, "", "fr", False),
        (MANY, "zh-TW", "fr", False),
        (PREFIXED, "en", "de", True),
        (PREFIXED, "en", "en", False),
        (ONE, "zh-" * 40_000, "en", False),
        (ONE, "zh", "en-" * 40_000, False),
    ],
)
def test_pairs(languages, source, target, expected):
    assert bool(with_pair({"m": languages}, source, target)) is expected


def registry_of(metrics, *pairs, **settings):
    registry = Registry(dict, never, **settings)
    for model in models_of(metrics, *pairs):
        registry.add(model)
    return registry


@pytest.mark.parametrize(
    ("models", "source", "target", "expected"),
    [
        (["de--en", "en--zh"], "de", "zh", ("de--en", "en", "en--zh")),
        (["de--en", "en--zh"], "de-AT", "zho_Hans", ("de--en", "en", "en--zh")),
        (["deu_Latn--eng_Latn", "en--zh"], "de", "zh", ("deu_Latn--eng_Latn", "eng_Latn", "en--zh")),
        (["de--fr", "fr--zh", "de--en", "en--zh"], "de", "zh", ("de--en", "en", "en--zh")),
        (["de--fr.es.en-GB", "fr--zh", "es--zh", "en--zh"], "de", "zh", ("de--fr.es.en-GB", "en-GB", "en--zh")),
        (["de--es.fr", "fr--zh", "es--zh"], "de", "zh", ("de--es.fr", "es", "es--zh")),
        (["de--fr", "fr--en", "en--zh"], "de", "zh", None),  # two languages between
        (["de--en", "fr--zh"], "de", "zh", None),
        (["de--en", "en--zh"], "zh", "de", None),
        (["de--en", "en--de"], "de", "de", None),
        (["de--en", "en--de"], "de", "de-AT", None),
        (["de--en", "en--de"], "de-AT", "de", None),
        (["de--en", "en--zh"], "", "zh", None),
        (["de--en", "en--zh"], "de", "", None),
        (["de--und", "und--zh"], "de", "zh", None),
        (["und--en", "en--zh"], "de", "zh", None),
        (["de.en--en.zh"], "de", "zh", None),
    ],
)
def test_the_third_language(metrics, models, source, target, expected):
    found = Choice({model.name: model for model in models_of(metrics, *models)}).pivot(source, target)
    assert (found and (found.first.name, found.language, found.second.name)) == expected
    if found:
        assert found.name == f"{expected[0]} + {expected[2]}"


def test_only_pairs_that_a_model_has_are_steps(metrics):
    prefixes = {"pair_prefixes": {"de": {"fr": "a: "}, "fr": {"en": "b: "}}}
    first = Model(
        metrics, "a", source_languages=["de", "fr"], target_languages=["fr", "en"], language_templates=prefixes
    )
    models = [first, *models_of(metrics, "en--zh", "fr--zh")]
    found = Choice({model.name: model for model in models}).pivot("de", "zh")
    assert found
    assert found.language == "fr"


def test_pivots_are_those_of_the_models_now_unless_the_server_has_none(metrics):
    registries = [registry_of(metrics, "de--en", pivots=pivots) for pivots in (True, False)]
    assert [registry.choice.pivot("de", "zh") for registry in registries] == [None, None]
    for registry in registries:
        registry.add(*models_of(metrics, "en--zh"))
    assert [registry.choice.pivot("de", "zh") is not None for registry in registries] == [True, False]
    assert list(registries[1].choice.source_languages("", "zh")) == ["en"]


@pytest.mark.parametrize(
    ("models", "name", "target", "expected"),
    [
        (["de--en", "fr--en", "en--zh"], "", "en", ["de", "fr"]),
        (["de--en", "fr--en", "en--zh"], "", "zh", ["en", "de", "fr"]),
        (["de--en", "deu_Latn.fr--en"], "", "en", ["de", "deu_Latn", "fr"]),
        (["de--en", "fr--en.zh"], "", "", ["de"]),
        (["de--en", "fr.es--en"], "fr.es--en", "en", ["fr", "es"]),
        (["de--en", "fr.es--en"], "fr.es--en", "ja", ["fr", "es"]),  # the model says what is wrong
        (["de.fr--en"], "", "", ["de", "fr"]),
        (["de--en", "und--en"], "", "en", ["de"]),
        (["und--en", "und--zh"], "", "en", ["und"]),
    ],
)
def test_the_languages_that_can_be_translated(metrics, models, name, target, expected):
    assert list(registry_of(metrics, *models).choice.source_languages(name, target)) == expected


@pytest.mark.parametrize(
    ("models", "name", "target", "problem"),
    [
        (["de--en", "fr--en.zh"], "", "ja", "target_language: no model translates to 'ja'; this server has"),
        (["de--en", "fr--en.zh"], "", "und", r"no model translates to 'und' \(an undetermined language\)"),
        (["de--en", "fr--en.zh"], "xx", "en", "there is no model 'xx'"),
        (["de--en.zh", "fr--en.zh"], "", "", "target_language: needs a language"),
    ],
)
def test_no_language_can_be_translated(metrics, models, name, target, problem):
    with pytest.raises(ModelNotFoundError, match=problem):
        registry_of(metrics, *models).choice.source_languages(name, target)


def test_models_that_name_their_languages_come_first(metrics):
    registry = registry_of(metrics, "und--en", "zh--en")
    assert registry.choice.model("", "zh", "en").name == "zh--en"
    assert registry.choice.model("", "de", "en").name == "und--en"


def test_lists_of_names_are_short():
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(map(str, range(300))) == ", ".join(map(str, range(12))) + " and 288 more"
    assert listed(["x" * 100, "y" * 100]) == "x" * 100 + " and 1 more"


def test_many_models_of_many_languages_are_looked_through_once(metrics, monkeypatch):
    """A caller sends what tags it likes, and all of this is on the event loop."""
    tags = [f"q{letter}{other}" for letter in "abcd" for other in "abcdefghij"]
    found = [
        Model(metrics, f"m{i}", source_languages=tags[i:] + tags[:i], target_languages=[*tags[:20], f"x{i}"])
        for i in range(20)
    ]
    choice = Choice({model.name: model for model in found})
    asked = []
    monkeypatch.setattr(choice_module, "lookup", lambda tag, known: asked.append(tag) or lookup(tag, known))
    language_tags._known.cache_clear()
    for target in ("x7", "qaa", "nobody"):
        with suppress(ModelNotFoundError):
            choice.source_languages("", target)
        choice.pivot("qcj", target)
    assert len(asked) < 3_000  # not 20 models for 20 languages of each of 20 models
    assert language_tags._known.cache_info().misses <= 40
