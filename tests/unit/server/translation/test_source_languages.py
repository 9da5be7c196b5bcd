"""Finding the languages of a request's texts."""

from typing import Any

import pytest

from translane.options import Format
from translane.requests import TranslationRequest
from translane.results import Hypothesis, Timing, Translation, Translations
from translane_server.core.budget import Budget, OverBudgetError
from translane_server.core.errors import InvalidRequestError
from translane_server.translation import routing
from translane_server.translation.routing import ByLanguage


class Models:
    def __init__(self, *languages):
        self.languages = languages
        self.asked = []

    def source_languages(self, name, target_language):
        self.asked.append((name, target_language))
        return self.languages


class Workers:
    """Does work at once, and remembers its size."""

    def __init__(self):
        self.sizes = []

    async def read(self, size, work, _caller):
        self.sizes.append(size)
        return work(Budget(1.0))


class Identifier:
    made = 0

    def __init__(self):
        type(self).made += 1

    def find(self, texts, candidates, _budget):
        if "slow" in texts:
            raise OverBudgetError
        return [candidates["de" in text] for text in texts]


class Echo:
    """Translates each text to itself."""

    name = "m"

    async def translate(self, request, ticket):
        translations = [Translation((Hypothesis(text, None),), 1) for text in request.texts]
        return Translations(translations, (self.name,), Timing(0, 0, 0, 0))


def by_language(models: Any, workers: Any) -> ByLanguage:
    route: Any = lambda *_names: Echo()  # noqa: E731
    return ByLanguage(models.source_languages, route, workers, most_texts=4)


async def found(languages, request):
    translated = await languages.translate(request)
    assert [each.text for each in translated.translations] == list(request.texts)
    return [each.treatment.source_language for each in translated.translations]


@pytest.fixture
def identifier(monkeypatch):
    Identifier.made = 0
    monkeypatch.setattr(routing, "LanguageIdentifier", Identifier)
    return Identifier


async def test_one_language_needs_no_search(identifier):
    models, workers = Models("zh"), Workers()
    request = TranslationRequest(["a", "b"], model="m", target_language="en")
    assert await found(by_language(models, workers), request) == ["zh", "zh"]
    assert models.asked == [("m", "en")]
    assert (workers.sizes, identifier.made) == ([], 0)


async def test_the_identifier_is_loaded_once_and_sees_no_tags(identifier):
    languages = by_language(Models("en", "de"), workers := Workers())
    assert await found(languages, TranslationRequest(["x de", "x", "<de>x"])) == ["de", "en", "de"]
    html = TranslationRequest(["<p lang=de>x</p>"], format=Format.HTML)
    assert await found(languages, html) == ["en"]
    assert identifier.made == 1
    assert len(workers.sizes) == 2
    assert workers.sizes[0] > workers.sizes[1] > len(html.texts[0])


@pytest.mark.parametrize(("streamed", "field"), [(False, "texts"), (True, "text")])
async def test_what_takes_too_long_is_refused(identifier, streamed, field):
    languages = by_language(Models("en", "de"), Workers())
    request = TranslationRequest(["slow"], streamed=streamed)
    with pytest.raises(InvalidRequestError, match="to read; send less text") as caught:
        await (anext(languages.stream(request)) if streamed else languages.translate(request))
    assert [each.field for each in caught.value.violations] == [field]
