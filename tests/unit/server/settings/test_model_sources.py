"""Which URLs lead to models, and that nobody sees the secrets in them."""

import pytest

from translane_server.core.errors import SettingsError
from translane_server.settings.loader import load_settings
from translane_server.settings.model_sources import ModelPlace, ModelUrl, RemotePlace
from translane_server.settings.server_settings import ENV_PREFIX, ServerSettings

DIGEST = "0123456789abcdef" * 4
SECRET = "hunter2"


def load(*argv, **environ):
    return load_settings(ServerSettings, argv, environ, prog="translane serve", env_prefix=ENV_PREFIX)


def test_http_takes_a_digest_unless_it_stays_on_the_machine():
    assert ModelUrl.parse(f"http://host/a@sha256:{DIGEST}").digest == DIGEST
    with pytest.raises(ValueError, match="http:// needs a digest"):
        ModelUrl.parse("http://host/a")
    with pytest.raises(ValueError, match="a password in the URL of a model needs https://"):
        ModelUrl.parse(f"http://user:{SECRET}@host/a@sha256:{DIGEST}")
    for text in ("http://[::1]:5/a", "http://127.0.0.1/a", "http://localhost/a", f"http://user:{SECRET}@localhost/a"):
        assert ModelUrl.parse(text).scheme == "http"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ftp://host/a", "begins with https://, http://, s3:// or hf://"),
        ("file:///etc/passwd", "begins with https://, http://, s3:// or hf://"),
        ("https:///a", "has no host"),
        ("https://host:port/a", "has no host, or a wrong port"),
        ("https://[::1/a", "has no host, or a wrong port"),
        ("https://host/a#b", "has no part after #"),
        ("https://host/a b", "all of them visible ASCII"),
        ("https://host/\n", "all of them visible ASCII"),
        ("https://host/" + "a" * 4000, "at most 4,000 characters"),
        ("https://host/a@sha256:0123", "64 hexadecimal digits"),
        ("https://host/a@sha256:" + "g" * 64, "64 hexadecimal digits"),
        ("s3://bucket/a?x=y", "s3://BUCKET/FOLDER"),
        ("s3://key:word@bucket/a", "s3://BUCKET/FOLDER"),
        ("s3://Bucket_/a", "s3://BUCKET/FOLDER"),
        ("hf://owner", "hf://OWNER/NAME"),
        ("hf://owner/name@/a", "hf://OWNER/NAME"),
        ("hf://token@owner/name", "hf://OWNER/NAME"),
        ("hf://owner/name?revision=x", "hf://OWNER/NAME"),
    ],
)
def test_what_is_no_url_of_a_model(text, problem):
    with pytest.raises(ValueError, match=problem):
        ModelUrl.parse(text)


def test_secrets_are_not_shown():
    url = ModelUrl.parse(f"https://user:{SECRET}@host/a?sig={SECRET}@sha256:{DIGEST}")
    assert str(url) == f"https://host/a?…@sha256:{DIGEST}"
    assert SECRET not in repr(url) + repr(RemotePlace(url))


@pytest.mark.parametrize(
    "places",
    [
        [f"https://user:{SECRET}@host:port/a"],
        [f"zh=https://user:{SECRET}@host/a#b"],
        ["x=y", f"https://user:{SECRET}@host/a?sig={SECRET}@sha256:1"],
        ["n" * 101 + f"=https://user:{SECRET}@host/a"],
    ],
)
def test_a_wrong_setting_does_not_quote_them(places):
    with pytest.raises(SettingsError) as caught:
        load(*(f"{place}" for place in places))
    assert "MODEL" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_places_are_folders_or_urls():
    settings = load("a", f"b=https://host/x@sha256:{DIGEST}", "https://host/y?a=b")
    first, second, third = settings.model
    assert (type(first), second.name, third.name) == (ModelPlace, "b", "")
    assert [str(place.url) for place in (second, third)] == [f"https://host/x@sha256:{DIGEST}", "https://host/y?…"]
    listed = load(TRANSLANE_MODEL=f"a=https://host/x?p=1,2@sha256:{DIGEST},b=s3://bucket/y").model
    assert [(place.name, place.url.scheme) for place in listed] == [("a", "https"), ("b", "s3")]
    assert [type(place) for place in load("a/b", "C:/a", "./http://a").model] == [ModelPlace] * 3
    assert load("HTTPS://host/a").model[0].url.scheme == "https"


def test_the_key_of_a_url_tells_urls_apart():
    texts = ("https://host/a", "https://host/b", "https://host/a?v=1", "https://other/a", "s3://host/a")
    assert len({ModelUrl.parse(text).key for text in texts}) == len(texts)
    same = ("https://host/a", "https://host/a/", "https://user:x@host/a", f"https://host/a@sha256:{DIGEST}")
    assert len({ModelUrl.parse(text).key for text in same}) == 1
