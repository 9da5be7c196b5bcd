"""What becomes of terms: which a sentence must keep, what the model can spell, and what the answer reports."""

import random
from typing import Any

import pytest
from msgspec.structs import asdict

from fakes.language_model import DECODER_START, EOS, RandomBackend, RandomModel
from fakes.serving import FakeTokenizer, make_manifest
from translane.options import Term, checked_options
from translane.requests import TranslationRequest
from translane.results import TermOutcome, Treatment
from translane_server.engine import offline
from translane_server.engine.sequence import TargetVocabulary
from translane_server.text.glossaries import StoredGlossaries, StoredGlossary
from translane_server.text.glossary import Glossary, Words
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.reader import TranslateReader
from translane_server.translation.terms import KeptTerms, Spelling, most_reports, required_phrases

TOKENIZER = FakeTokenizer()
UNKNOWN = make_manifest().special_ids.unk
SOURCES, TARGET = 64, 32  # tokens


def kept(*terms, stored=(), **others):
    return KeptTerms(Glossary([Term(*term) for term in terms]), stored, Spelling(TOKENIZER, UNKNOWN), **others)


def glossary(name, *terms):
    return Glossary([Term(*term) for term in terms], name=name)


def reported(terms, *sentences, most=256, written=None):
    """Term's source and glossary → name of the outcome. A sentence is a text and its translation."""
    reports = terms.reports([(terms.in_sentence(text), out) for text, out in sentences], most, written)
    return {each.source + each.glossary: each.outcome.name for each in reports}


def test_a_term_of_several_sentences_has_the_worst_outcome():
    terms = kept(("cat", "Katze"), ("dog", "Hund"))
    sentences = [("a cat and a dog", "Katze, Hund"), ("no animal", "x"), ("a cat", "x")]
    assert reported(terms, *sentences) == {"cat": "MISSED", "dog": "APPLIED"}
    assert reported(terms) == {"cat": "NOT_FOUND", "dog": "NOT_FOUND"}
    assert reported(kept(("cat", "Katze"), ("cat", "Katze")), ("a cat", "Katze")) == {"cat": "APPLIED"}


def test_terms_with_the_same_target_count_once():
    letters = [chr(ord("a") + number) for number in range(18)]
    terms = kept(*((letter, "x") for letter in letters))
    assert len(required_phrases(terms.in_sentence(" ".join(letters)))) == 1
    assert set(reported(terms, (" ".join(letters), "x")).values()) == {"APPLIED"}


def test_a_stored_term_whose_target_is_suppressed_is_not_required():
    terms = kept(stored=[glossary("x", ("cat", "Katze"))], suppressed=("atz",))
    assert required_phrases(terms.in_sentence("cat")) == ()
    assert reported(terms, ("cat", "Hund")) == {"catx": "MISSED"}


def test_reports_are_bounded():
    assert [most_reports(texts) for texts in (1, 16, 17, 256, 100_000)] == [256, 256, 240, 16, 16]
    terms = kept(*((f"t{number}", "x") for number in range(9)), ("cat", "Katze"))
    assert reported(terms, ("cat", ""), most=2) == {"cat": "MISSED", "t0": "NOT_FOUND"}


class NormalizingTokenizer(FakeTokenizer):
    """Writes no capitals, no full-width letters, and no question marks."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def encode_target(self, texts):
        self.calls += texts
        return super().encode_target([text.lower().replace("ａ", "a").replace("?", "") for text in texts])


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("Fuchs", b"fuchs"),
        (" x\u3000", b"x"),
        ("Ａb", b"ab"),
        ("why?", None),
        ("?", None),
        ("\u03c0", None),
        (" ", None),
    ],
)
def test_a_phrase_is_what_the_model_writes_if_that_says_the_same(text, spelled):
    tokenizer = NormalizingTokenizer()
    spelling = Spelling(tokenizer, UNKNOWN)
    for _ in range(2):
        phrase = spelling.phrase(text)
        assert (phrase.text if phrase else None) == spelled
    assert len(tokenizer.calls) <= 1


# Generated requests, through the search: none is refused, and what is said to be applied is there.


class LetterTokenizer(FakeTokenizer):
    """Makes one token of each character of a small vocabulary, which source and target share."""

    UNKNOWN = 2
    SURFACES = ("", "", "\u2047", *" abcdefghiklnortuwxyzKNY日本é")

    @property
    def target_surfaces(self):
        return [surface.encode() for surface in self.SURFACES]

    def encode(self, texts):
        return [[*ids, EOS] if ids else [] for ids in self.encode_target(texts)]

    def encode_target(self, texts):
        known = {surface: number for number, surface in enumerate(self.SURFACES) if surface}
        return [[known.get(character, self.UNKNOWN) for character in text.strip()] for text in texts]

    def decode(self, ids, unknowns=()):
        return ["".join(self.SURFACES[token] for token in sentence).strip() for sentence in ids]


WORDS = ["a", "b", "c", "cat", "cats", "Cat", "New", "York", "owl", "π", "🙂", "<b>", "日本", "x1"]
TARGETS = ["Katze", "Neu York", "x", "\u03c0", "\U0001f642", "<b>", "a b", "zz zz", "日本", "\u202e", "y" * 40, "é"]


def random_term(pick):
    source = " ".join(pick.choices(WORDS, k=pick.choice((1, 1, 1, 2, 3))))
    flags = {"ignore_case": pick.random() < 0.3, "inflected": pick.random() < 0.3}
    return Term(source, pick.choice(TARGETS), **flags)


def random_text(pick):
    return " ".join(pick.choices(WORDS, k=pick.randint(0, 12)))[: SOURCES - 1]


def random_request(pick):
    options: dict[str, Any] = {"terminology": [random_term(pick) for _ in range(pick.choice((0, 1, 3, 20)))]}
    options["glossaries"] = pick.sample(["one", "two"], k=pick.choice((0, 1, 2)))
    if pick.random() < 0.3:
        options["beam_size"] = pick.randint(2, 6)
    if pick.random() < 0.3:
        options |= {"beam_size": 3, "num_hypotheses": 2}
    elif pick.random() < 0.5:
        options["split_sentences"] = True
    if pick.random() < 0.2:
        options["max_length"] = pick.randint(1, 20)
    if pick.random() < 0.2:
        options["no_repeat_ngram_size"] = 2
    texts = [random_text(pick) for _ in range(8)]
    return TranslationRequest(texts, source_language="zh", options=checked_options(options))


def stored_of(pick, name):
    terms = {term.source: term for term in (random_term(pick) for _ in range(12))}.values()
    read = [Term(term.source, term.target, term.ignore_case, term.inflected) for term in terms]
    return StoredGlossary("zh", "en", Glossary(read, "en", name))


REQUESTS = 4  # of each seed


@pytest.mark.parametrize("seed", range(4))
def test_no_term_refuses_a_request_and_what_is_applied_is_there(seed):
    pick = random.Random(seed)
    stored = StoredGlossaries([stored_of(pick, "one"), stored_of(pick, "two")])
    limits = RequestLimits(8, 512, TokenLimits(SOURCES, TARGET, TARGET), max_beam_size=6)
    tokenizer = LetterTokenizer()
    special_ids = asdict(make_manifest().special_ids) | {"unk": tokenizer.UNKNOWN}
    reader = TranslateReader(make_manifest(special_ids=special_ids), tokenizer, limits, lambda: stored)
    model = RandomModel(vocab_size=len(tokenizer.SURFACES), seed=seed, eos_bias=2.0)
    backend = RandomBackend(model, rows=64, source_capacity=SOURCES, target_capacity=TARGET)
    vocabulary = TargetVocabulary(DECODER_START, EOS, tokenizer.target_surfaces)
    seen = set()
    for _ in range(REQUESTS):
        request = random_request(pick)
        reader.check(request)
        prepared = reader.read(request)
        translations = prepared.translations(offline.decode(backend, vocabulary, prepared.sentences))
        for text, translation in zip(request.texts, translations, strict=True):
            reports = (translation.treatment or Treatment()).terms
            seen |= {report.outcome for report in reports}
            of_request = [(each.source, each.target) for each in reports if not each.glossary]
            assert set(of_request) == {(term.source, term.target) for term in request.options.terminology}
            for report in reports:
                if report.outcome == TermOutcome.APPLIED:
                    assert report.target in translation.hypotheses[0].text
                if not Glossary([Term(report.source, "x", True, True)], "en").find(*words_of(text)):
                    assert report.outcome in (TermOutcome.NOT_FOUND, TermOutcome.UNSPELLABLE)
    assert {TermOutcome.APPLIED, TermOutcome.NOT_FOUND, TermOutcome.UNSPELLABLE} <= seen


def words_of(text):
    words = Words(text)
    return words, bytearray(len(words))
