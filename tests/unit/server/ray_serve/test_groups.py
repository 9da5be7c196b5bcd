"""Which deployment answers a request."""

import pytest

from translane_server.bundle.manifest import Languages
from translane_server.core.errors import InvalidRequestError, ModelNotFoundError
from translane_server.ray_serve.router import group_of


def model(source, target):
    return Languages(source=tuple(source.split()), target=tuple(target.split()))


GROUPS = {
    "east": {"zh-en": model("zh", "en"), "ja-en": model("ja", "en")},
    "west": {"de-en": model("de", "en"), "en-fr": model("en", "fr")},
    "other": {"de-en-large": model("de", "en"), "any": model("und", "nl")},
}


@pytest.mark.parametrize(
    ("request_of", "group"),
    [
        (("zh-en", "", ""), "east"),
        (("any", "xx", "yy"), "other"),  # the deployment itself says what is wrong with the languages
        (("", "zh", "en"), "east"),
        (("", "zh-TW", "en"), "east"),
        (("", "en", "fr"), "west"),
        (("", "tr", "nl"), "other"),
        (("", "de", "fr"), "west"),  # through English, with two models of one deployment
        (("", "auto", "fr"), "west"),
    ],
)
def test_the_one_deployment(request_of, group):
    assert group_of(GROUPS, *request_of) == group


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        (("de-fr", "", ""), "model: there is no model 'de-fr'; this server has zh-en, ja-en, de-en, en-fr"),
        (("", "zh", "fr"), "model: no model translates 'zh' to 'fr'"),  # the two models are of two deployments
        (("", "auto", "tr"), "target_language: no model translates to 'tr'"),
    ],
)
def test_no_deployment(request_of, message):
    with pytest.raises(ModelNotFoundError) as raised:
        group_of(GROUPS, *request_of)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("source", ["de", "auto"])
def test_several_deployments(source):
    with pytest.raises(InvalidRequestError, match=r"^model: is needed, several models fit: "):
        group_of(GROUPS, "", source, "en")


def test_several_models_of_one_deployment_are_its_own_affair():
    groups = {"one": {"a": model("de", "en"), "b": model("de", "en")}, "two": {"c": model("fr", "en")}}
    assert group_of(groups, "", "de", "en") == "one"
