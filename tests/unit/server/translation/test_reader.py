"""Requests as the engine's sentences: what is kept of one request for the next, and how long reading may take."""

import itertools
from functools import partial
from itertools import pairwise

import pytest
from msgspec.structs import asdict

from fakes.serving import UNKNOWN, FakeTokenizer, make_manifest, make_settings
from translane.options import Options, Term, checked_options
from translane.requests import TranslationRequest
from translane_server.core.budget import Budget, WorkEndedError
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.engine.sequence import AlignedToken, CommittedTokens, Hypothesis, SentenceResult, Timing
from translane_server.text.glossary import Glossary
from translane_server.translation import plan
from translane_server.translation.limits import RequestLimits, TokenLimits, limits_of
from translane_server.translation.options import check_options
from translane_server.translation.reader import TranslateReader
from translane_server.translation.translations import surfaces


@pytest.fixture
def planned(monkeypatch):
    """The options that plans were made of, in their order."""
    seen = []

    def seen_check(options, *others):
        seen.append(options)
        return check_options(options, *others)

    monkeypatch.setattr(plan, "check_options", seen_check)
    return seen


@pytest.fixture
def prepare():
    manifest = make_manifest(target_languages=["en", "fr"])
    limits = RequestLimits(4, 8, limits_of(make_settings().of_model("m"), manifest).tokens, max_beam_size=6)
    reader = TranslateReader(manifest, FakeTokenizer(), limits)

    def prepare(text="x", target="en", *, streamed=False, **options):
        request = TranslationRequest(
            [text], target_language=target, options=checked_options(options), streamed=streamed
        )
        reader.check(request)
        return reader.read(request)

    return prepare


def test_other_options_or_languages_are_planned_anew(prepare, planned):
    assert prepare(max_length=7).sentences[0].options.max_length == 7
    assert prepare(max_length=8).sentences[0].options.max_length == 8
    assert prepare(max_length=8, target="fr").plan.target_language == "fr"
    assert prepare(max_length=8).plan.target_language == "en"
    assert prepare().sentences[0].options.max_length == 20
    assert len(planned) == 4


def test_every_sampled_text_has_a_seed_of_its_own(prepare, planned):
    seeds = {prepare(top_k=2).sentences[0].options.sampling.seed for _ in range(20)}
    assert len(seeds) == 20
    assert max(seeds) > 2**32
    assert len(planned) == 1
    assert {prepare(top_k=2, seed=0).sentences[0].options.sampling.seed for _ in range(3)} == {0}


def test_a_stream_has_one_hypothesis_whatever_others_had(prepare):
    options = {"beam_size": 2, "num_hypotheses": 2}
    assert prepare(**options).sentences[0].options.num_hypotheses == 2
    with pytest.raises(InvalidRequestError, match="a stream has one"):
        prepare(streamed=True, **options)


def test_options_of_any_length_are_not_remembered(prepare, planned):
    for _ in range(2):
        prepare(suppressed_phrases=["x" * 128] * 64)
    assert len(planned) == 2


def test_what_is_remembered_is_bounded(prepare, planned):
    for seed in range(plan._PLANS + 1):
        prepare(top_k=2, seed=seed)
    prepare(top_k=2, seed=plan._PLANS)
    assert len(planned) == plan._PLANS + 1
    prepare(top_k=2, seed=0)
    assert len(planned) == plan._PLANS + 2


class SlowTokenizer(FakeTokenizer):
    """Takes a second for each call; or ends the budget, as a caller does who goes."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.budget = Budget(2.5, clock=lambda: self.now)
        self.goes = False

    def encode(self, texts):
        self.now += 1
        if self.goes:
            self.budget.end()
        return super().encode(texts)


LONG = RequestLimits(64, 8, TokenLimits(2000, 24, 24), max_beam_size=6)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (TranslationRequest(["x" * 1000] * 3, options=Options(split_sentences=True)), "texts"),
        (TranslationRequest(["y" * 8000], options=Options(split_sentences=True), streamed=True), "text"),
        (TranslationRequest(["x" * 60_000] * 4), "texts"),
    ],
)
@pytest.mark.parametrize("goes", [False, True])
def test_reading_ends_with_its_time_and_with_its_caller(asked, field, goes):
    tokenizer = SlowTokenizer()
    tokenizer.goes = goes
    reader = TranslateReader(make_manifest(), tokenizer, LONG)
    reader.check(asked)
    tokenizer.budget.start()
    with pytest.raises(WorkEndedError if goes else InvalidRequestError) as caught:
        reader.read(asked, tokenizer.budget)
    if isinstance(caught.value, InvalidRequestError):
        problem = "takes more than 2.5 seconds to read; send less text in a request"
        assert caught.value.violations == (FieldViolation(field, problem),)


@pytest.mark.parametrize(
    ("work", "found", "asked", "field"),
    [
        (
            (Glossary, "find"),
            [],
            TranslationRequest(["a"] * 50, options=Options(terminology=(Term("a", "b"),))),
            "texts",
        ),
        (
            (FakeTokenizer, "source_spans"),
            [(0, 1), (1, 2), None],
            TranslationRequest(["A! " * 8], options=Options(replace_unknowns=True), streamed=True),
            "text",
        ),
        ((FakeTokenizer, "source_spans"), [*pairwise(range(5)), None], TranslationRequest(["a Ж! " * 8]), "texts"),
    ],
    ids=["terms", "what unknown tokens of a stream may stand for", "unknown characters"],
)
def test_what_is_looked_for_is_found_within_the_time(monkeypatch, work, found, asked, field):
    tokenizer = SlowTokenizer()
    looked = []

    def look(_self, text, *_):
        tokenizer.now += 1
        looked.append(text)
        return found

    monkeypatch.setattr(*work, look)
    special_ids = asdict(make_manifest().special_ids) | {"unk": 1}  # what the tokenizer makes of other letters
    reader = TranslateReader(make_manifest(special_ids=special_ids), tokenizer, LONG)
    tokenizer.budget.start()
    with pytest.raises(InvalidRequestError, match=f"^{field}: takes more than"):
        reader.read(asked, tokenizer.budget)
    assert 0 < len(looked) < 5


def test_markup_is_parsed_within_the_time():
    budget = Budget(20, clock=itertools.count().__next__)  # each look takes a second
    budget.start()
    reader = TranslateReader(make_manifest(), FakeTokenizer(), LONG)
    with pytest.raises(InvalidRequestError, match="texts: takes more than"):
        reader.read(TranslationRequest(["<p></p>"] * 50, format="html"), budget)


def test_answers_are_built_until_the_caller_goes(prepare):
    prepared = prepare()
    hypothesis = Hypothesis((UNKNOWN,), None, True)
    results = [SentenceResult((hypothesis,), Timing(0, 0, 0))]
    budget = Budget()
    assert len(prepared.translations(results, budget)) == 1
    budget.end()
    with pytest.raises(WorkEndedError):
        prepared.translations(results, budget)


@pytest.mark.parametrize("page", ["<p>a <b>b</b></p>", "<p title=a>"])
def test_no_translation_is_taken_for_a_tag(page):
    tokenizer = FakeTokenizer()
    tokenizer._characters |= {UNKNOWN: "\ufdd00\ufdd1"}  # how the marks of a page name its first tag
    reader = TranslateReader(make_manifest(), tokenizer, LONG)
    prepared = reader.read(TranslationRequest([page], format="html"))
    hypothesis = Hypothesis((UNKNOWN,), None, True)
    (translation,) = prepared.translations([SentenceResult((hypothesis,), Timing(0, 0, 0))])
    assert "\ufffd0\ufffd" in translation.text


def unknowns_of_a_stream():
    """Returns what two unknown tokens stand for, which come from the end and from the start of the source, ab."""
    request = TranslationRequest(["ab"], options=Options(replace_unknowns=True), streamed=True)
    prepared = TranslateReader(make_manifest(), FakeTokenizer(), LONG).read(request)
    (source,) = prepared.texts[0].segments
    tokens = CommittedTokens((UNKNOWN, UNKNOWN), (AlignedToken(1, 0.5), AlignedToken(0, 0.5)))
    return partial(surfaces, prepared.plan, source, tokens)


def test_a_stream_knows_what_its_unknown_tokens_stand_for_before_it_starts(monkeypatch):
    """A token of a stream is turned into text on the event loop; the source is not tokenized again there."""
    calls = []

    def source_spans(_tokenizer, text):
        calls.append(text)
        return [(0, 1), (1, 2), None]

    monkeypatch.setattr(FakeTokenizer, "source_spans", source_spans)
    found = unknowns_of_a_stream()
    assert calls == ["ab"]
    assert [found() for _ in range(3)] == [[b"b", b"a"]] * 3
    assert calls == ["ab"]


def test_a_replaced_unknown_word_keeps_the_space_before_it(monkeypatch):
    """Where tokens are words, the unknown one has that space, as every other has."""
    known = list(FakeTokenizer().target_surfaces)
    known[UNKNOWN] = " \N{DOUBLE QUESTION MARK}".encode()
    monkeypatch.setattr(FakeTokenizer, "target_surfaces", known)
    assert unknowns_of_a_stream()() == [b" b", b" a"]
