"""What must survive survives: thousands of texts with placeholders, tags and emoji, whatever the model writes."""

import random
from dataclasses import replace
from typing import Any

import pytest

from helpers.bundles import SOURCES, random_bundle
from helpers.demo import DEMO
from translane import Term, TermOutcome, Translator
from translane_server.bundle.bundle import read_manifest

pytestmark = pytest.mark.slow

# None of them is in the vocabulary, so that the model cannot write them.
KEPT = (
    "{name}", "{{user.id}}", "%s", "%1$d", "${x}", '<x id="1"/>', "https://example.org/a_(b)?c=d#e", "a.b@mail.example",
    "🙂", "👩‍👩‍👧‍👦", "🇩🇪", "{n, plural, one {# 猫} other {# {x} 猫}}", "`a = 1`", "ABC-1234", "<br>", "&nbsp;",
    "/usr/bin", "Ω", "Ψж", "%(k)s", "v1.2.3", "snake_case", "[[7]]",
)  # fmt: skip
TAGS = ("b", "i", "a href='x'")
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"beam_size": 3, "num_hypotheses": 3},
    "samples": {"temperature": 1.5, "seed": 7, "num_hypotheses": 2},
    "terms": {
        "terminology": [
            Term("猫", "cat"),
            Term("{name}", "name"),  # within something that is kept
            Term("书{name}", "book"),  # something that is kept is within it
            Term("你好", "Hello"),
        ]
    },
    "tokens": {"return_tokens": True, "return_alignment": True, "return_token_scores": True, "replace_unknowns": True},
    "prefix": {"target_prefix": "I have"},
}


def text_of(choice):
    """Sentences with what is kept at random places."""
    sentences = []
    for _ in range(choice.choice((1, 1, 2, 3))):
        sentence = choice.choice(SOURCES)
        for _ in range(choice.randrange(4)):
            kept = choice.choice(KEPT)
            place = choice.randrange(len(sentence) + 1)
            space = choice.choice(("", " "))
            within_tag = sentence[:place].count("<") > sentence[:place].count(">")
            if within_tag or any(each in sentence for each in KEPT):  # not within another one
                place = choice.choice((0, len(sentence)))
            if choice.random() < 0.2:
                tag = choice.choice(TAGS)
                sentence = f"<{tag}>{sentence}</{tag.split()[0]}>"
            else:
                sentence = f"{sentence[:place]}{space}{kept}{space}{sentence[place:]}"
        sentences.append(sentence)
    return choice.choice(("", "\n", "\n\n- ")).join(sentences)


def lost(text, translation):
    """What is not in the translation as often as in the text."""
    parts = [*KEPT, *(f"<{tag}>" for tag in TAGS), *(f"</{tag.split()[0]}>" for tag in TAGS)]
    return {part for part in parts if text.count(part) != translation.count(part)}


@pytest.fixture(scope="module", params=[False, True], ids=["", "stand-ins"])
def random_model(request, tmp_path_factory):
    folder = random_bundle(tmp_path_factory.mktemp("bundles") / "random", eos_bias=3.0, stand_ins=request.param)
    assert bool(read_manifest(folder).stand_ins) == request.param
    with Translator(folder, workers=1) as model:
        yield model


@pytest.mark.parametrize("split", [None, True, False])
@pytest.mark.parametrize("options", OPTIONS)
def test_whatever_the_model_writes_everything_is_there_once(random_model, options, split):
    if options == "prefix" and split:
        return
    choice = random.Random(f"{options} {split}")
    texts = [text_of(choice) for _ in range(80)]
    chosen = OPTIONS[options] | ({} if split is None else {"split_sentences": split})
    found = random_model.translate(texts, max_length=12, preserve=[r"\[\[\d\]\]"], **chosen)
    for text, translation in zip(texts, found, strict=True):
        for hypothesis in translation.hypotheses:
            assert lost(text, hypothesis.text) == set(), (text, hypothesis.text)


@pytest.fixture(scope="module")
def demo():
    with Translator(DEMO, workers=1) as model:
        yield model


def test_the_tokens_are_those_of_the_text_without_what_is_kept(demo):
    asked = {"return_tokens": True, "return_token_scores": True, "return_alignment": True}
    options: Any = {**asked, "suppressed_phrases": ["⟨1⟩"]}  # no stand-in takes its place
    marked, plain = demo.translate(["我有{name}一只猫。", "我有一只猫。"], **options)
    assert "{name}" in marked.text
    best = replace(marked.hypotheses[0], text=plain.text)
    assert replace(marked, hypotheses=(best,), treatment=None) == plain


@pytest.mark.parametrize(
    ("text", "term", "found"),
    [
        ("他患了癫痫。", Term("癫痫", "epilepsy"), TermOutcome.APPLIED),
        ("我叫王龘。", Term("王龘", "Wang Da"), TermOutcome.APPLIED),
        ("癫痫", Term("癫痫", "epilepsy"), TermOutcome.APPLIED),
        ("Ψ 患了癫痫。", Term("癫痫", "epilepsy"), TermOutcome.APPLIED),
        ("他叫 ŻÓŁW。", Term("żółw", "Turtle", ignore_case=True), TermOutcome.APPLIED),
        ("e\u0301e\u0301e\u0301e\u0301e\u0301 他叫 Z\u0307o\u0301łw。", Term("Żółw", "Turtle"), TermOutcome.APPLIED),
        ("他叫 Żółw。", Term("Żółw", "Żółw"), TermOutcome.PRESERVED),
    ],
)
def test_a_word_that_the_vocabulary_lacks_may_be_a_term(demo, text, term, found):
    """A term that the model can write is found before what it cannot read is taken out."""
    translation = demo.translate(text, terminology=[term])
    assert [each.outcome for each in translation.treatment.terms] == [found]
    assert term.target in translation.text
    assert ("Ψ" in translation.text) == ("Ψ" in text)


@pytest.mark.parametrize("text", ["我有3只猫。", "他有3个孩子。", "他在2023年去了北京。"])
def test_a_stream_that_lacks_a_number_keeps_its_prefix(demo, text):
    """The model ends right after the prefix, and the sentence is decoded on for its number."""
    prefix = demo.translate(text.translate({ord(each): None for each in "0123456789"})).text
    with demo.translate_stream(text, target_prefix=prefix) as stream:
        assert "".join(stream).startswith(prefix)
