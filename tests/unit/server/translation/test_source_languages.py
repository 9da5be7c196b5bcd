"""Finding the languages of a request's texts."""

from typing import Any

import pytest

from translane.options import Format
from translane.requests import TranslationRequest
from translane_server.core.budget import OverBudgetError
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.translation import routing
from translane_server.translation.routing import SourceLanguages


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
        return work(None)


class Identifier:
    made = 0

    def __init__(self):
        type(self).made += 1

    def find(self, texts, candidates, _budget):
        if "slow" in texts:
            raise OverBudgetError
        return [candidates["de" in text] for text in texts]


def languages_of(models: Any, workers: Any) -> SourceLanguages:
    return SourceLanguages(models.source_languages, workers)


@pytest.fixture
def identifier(monkeypatch):
    Identifier.made = 0
    monkeypatch.setattr(routing, "LanguageIdentifier", Identifier)
    return Identifier


async def test_one_language_needs_no_search(identifier):
    models, workers = Models("zh"), Workers()
    request = TranslationRequest(["a", "b"], model="m", target_language="en")
    assert await languages_of(models, workers).find(request) == ["zh", "zh"]
    assert models.asked == [("m", "en")]
    assert (workers.sizes, identifier.made) == ([], 0)


async def test_the_identifier_is_loaded_once_and_sees_no_tags(identifier):
    languages = languages_of(Models("en", "de"), workers := Workers())
    assert await languages.find(TranslationRequest(["x de", "x", "<de>x"])) == ["de", "en", "de"]
    html = TranslationRequest(["<p lang=de>x</p>"], format=Format.HTML)
    assert await languages.find(html) == ["en"]
    assert identifier.made == 1
    assert len(workers.sizes) == 2
    assert workers.sizes[0] > workers.sizes[1] > len(html.texts[0])


@pytest.mark.parametrize(("streamed", "field"), [(False, "texts"), (True, "text")])
async def test_what_takes_too_long_is_refused(identifier, monkeypatch, streamed, field):
    monkeypatch.setattr(
        routing,
        "takes_too_long",
        lambda name, _budget: InvalidRequestError(FieldViolation(name, "takes too long")),
    )
    request = TranslationRequest(["slow"], streamed=streamed)
    with pytest.raises(InvalidRequestError) as caught:
        await languages_of(Models("en", "de"), Workers()).find(request)
    assert [each.field for each in caught.value.violations] == [field]
