"""Which two models translate what none does, and which languages can be translated to a target."""

import pytest

from fakes.models import Model
from translane_server.core.errors import ModelNotFoundError
from translane_server.models.choice import Choice
from translane_server.models.registry import Registry


def never(name, _folder):
    """No model is found in a folder here."""
    raise AssertionError(name)


def models_of(metrics, *pairs):
    """A model for each of `pairs`, such as de.fr--en: its source and its target languages."""
    found = []
    for pair in pairs:
        source, target = (side.split(".") for side in pair.split("--"))
        found.append(Model(metrics, pair, source_languages=source, target_languages=target))
    return found


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


def test_the_server_may_have_none(metrics):
    assert registry_of(metrics, "de--en", "en--zh").choice.pivot("de", "zh")
    assert registry_of(metrics, "de--en", "en--zh", pivots=False).choice.pivot("de", "zh") is None


def test_pivots_are_those_of_the_models_now(metrics):
    registry = registry_of(metrics, "de--en")
    assert registry.choice.pivot("de", "zh") is None
    (second,) = models_of(metrics, "en--zh")
    registry.add(second)
    assert registry.choice.pivot("de", "zh")


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


def test_without_pivots_only_direct_languages_can_be_translated(metrics):
    registry = registry_of(metrics, "de--en", "en--zh", pivots=False)
    assert list(registry.choice.source_languages("", "zh")) == ["en"]


def test_no_language_can_be_translated(metrics):
    registry = registry_of(metrics, "de--en", "fr--en.zh")
    with pytest.raises(ModelNotFoundError, match="target_language: no model translates to 'ja'; this server has"):
        registry.choice.source_languages("", "ja")
    with pytest.raises(ModelNotFoundError, match=r"no model translates to 'und' \(an undetermined language\)"):
        registry.choice.source_languages("", "und")
    with pytest.raises(ModelNotFoundError, match="there is no model 'xx'"):
        registry.choice.source_languages("xx", "en")
    with pytest.raises(ModelNotFoundError, match="target_language: needs a language"):
        registry_of(metrics, "de--en.zh", "fr--en.zh").choice.source_languages("", "")


def test_models_that_name_their_languages_come_first(metrics):
    registry = registry_of(metrics, "und--en", "zh--en")
    assert registry.choice.model("", "zh", "en").name == "zh--en"
    assert registry.choice.model("", "de", "en").name == "und--en"


def test_a_refusal_explains_tags_that_name_no_language(metrics):
    registry = registry_of(metrics, "de--en", "fr--en")
    with pytest.raises(ModelNotFoundError, match=r"no model translates 'mul' \(several languages\) to 'en'"):
        registry.choice.model("", "mul", "en")
