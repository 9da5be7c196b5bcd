"""Requests as the engine's sentences: what is kept of one request for the next; the rest is test_service's."""

import pytest

from fakes.serving import FakeTokenizer, make_manifest, make_settings
from translane.v1 import translation_pb2 as pb
from translane_server.errors import InvalidRequestError
from translane_server.requests import translate as reading
from translane_server.requests.limits import RequestLimits
from translane_server.requests.resolved_options import resolve
from translane_server.requests.translate import TranslateReader
from translane_server.settings import token_limits


@pytest.fixture
def resolved(monkeypatch):
    """The options that were resolved, in their order."""
    seen = []

    def seen_resolve(options, *others):
        seen.append(options)
        return resolve(options, *others)

    monkeypatch.setattr(reading, "resolve", seen_resolve)
    return seen


@pytest.fixture
def prepare():
    manifest = make_manifest(target_languages=["en", "fr"])
    limits = RequestLimits(4, 8, token_limits(make_settings(), manifest), beam_size=6)
    reader = TranslateReader(manifest, FakeTokenizer(), limits)

    def prepare(text="x", target="en", kind=pb.TranslateRequest, **options):
        texts = {"texts": [text]} if kind is pb.TranslateRequest else {"text": text}
        request = kind(**texts, target_language=target, options=pb.DecodingOptions(**options))
        reader.check(request)
        return reader.read(request)

    return prepare


def test_options_are_resolved_once(prepare, resolved):
    lengths = [prepare(text, max_length=7).sentences[0].options.max_length for text in ("a", "b")]
    assert lengths == [7, 7]
    assert len(resolved) == 1


def test_other_options_or_languages_are_resolved_anew(prepare, resolved):
    assert prepare(max_length=7).sentences[0].options.max_length == 7
    assert prepare(max_length=8).sentences[0].options.max_length == 8
    assert prepare(max_length=8, target="fr").target_language == "fr"
    assert prepare(max_length=8).target_language == "en"
    assert prepare().sentences[0].options.max_length == 20
    assert len(resolved) == 4


def test_every_sampled_text_has_a_seed_of_its_own(prepare, resolved):
    seeds = {prepare(top_k=2).sentences[0].options.sampling.seed for _ in range(8)}
    assert len(seeds) == 8
    assert len(resolved) == 1


def test_what_is_wrong_stays_wrong(prepare):
    for _ in range(2):
        with pytest.raises(InvalidRequestError) as caught:
            prepare(max_length=0, target="xx")
        assert {violation.field for violation in caught.value.violations} == {"options.max_length", "target_language"}


def test_a_stream_has_one_hypothesis_whatever_others_had(prepare):
    options = {"beam_size": 2, "num_hypotheses": 2}
    assert prepare(**options).sentences[0].options.num_hypotheses == 2
    with pytest.raises(InvalidRequestError, match="a stream has one"):
        prepare(kind=pb.TranslateStreamRequest, **options)


def test_what_is_remembered_is_bounded(prepare, resolved):
    for seed in range(reading._MANNERS + 1):
        prepare(top_k=2, seed=seed)
    prepare(top_k=2, seed=reading._MANNERS)
    assert len(resolved) == reading._MANNERS + 1
    prepare(top_k=2, seed=0)
    assert len(resolved) == reading._MANNERS + 2


@pytest.mark.parametrize(
    "long", [{"target": "fr" + "-x" * reading._MANNER_LENGTH}, {"suppressed_phrases": ["x" * 128] * 64}]
)
def test_options_and_languages_of_any_length_are_not_remembered(prepare, resolved, long):
    prepare(**long)
    prepare(**long)
    assert len(resolved) == 2
