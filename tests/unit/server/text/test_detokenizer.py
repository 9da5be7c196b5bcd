"""Deltas of text while tokens come, with SentencePiece models that fall back to bytes."""

import gzip
import io
from functools import cache
from pathlib import Path

import pytest
import regex
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from translane_server.request import AlignedToken
from translane_server.text.detokenizer import TextStream

DATA = Path(__file__).parents[5] / "shared" / "data"
KINDS = ["char", "bpe", "unigram"]
TEXTS = (
    "I have a cat, and you have two.",
    "你好，今天天气很好。",
    "नमस्ते, क्षमा कीजिए।",
    "e\u0301\u0323 à la carte",
    "👩‍👩‍👧‍👦 and 👍🏽, 🇩🇪🇫🇷, 1\ufe0f\u20e3, 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f!",
    "한국 \u1112\u1161\u11ab, กำลัง,  two spaces",
    "عَرَبِيّ ֎ \ufffd \U0001f9d1\u200d\U0001f680",
)


@cache
def model(kind):
    """A vocabulary of few pieces, some combining marks among them, and of all bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(
            ["the cat and the hat sat on the mat, caf\u0065\u0301", "你好今天。👩\u200d👧", "\u0301 🇩 x 🇪"] * 3
        ),
        model_writer=model,
        model_type=kind,
        vocab_size=320,
        hard_vocab_limit=False,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def decoder(pieces):
    return lambda ids, alignment: pieces.decode(list(ids))


def stream(decode, ids, sizes=None):
    """The deltas of `ids`, of which as many as `sizes` says are certain at each call."""
    text_stream = TextStream(decode)
    deltas = [text_stream.push(tuple(ids[:size])) for size in sizes or range(1, len(ids) + 1)]
    return [*deltas, text_stream.finish(decode(ids, ()))]


def check(decode, ids, sizes=None):
    deltas = stream(decode, ids, sizes)
    text = decode(ids, ())
    assert "".join(deltas) == text
    allowed = {0, *(match.end() for match in regex.finditer(r"\X", text))}
    position = 0
    for delta in deltas[:-1]:
        position += len(delta)
        assert position in allowed, (deltas, text)
        assert not delta or not delta[-1].isspace()
    return deltas


@st.composite
def growing(draw):
    ids = draw(st.lists(st.integers(0, 330), max_size=40))
    sizes = draw(st.lists(st.integers(0, len(ids)), max_size=20).map(sorted))
    return ids, sizes


@pytest.mark.parametrize("kind", KINDS)
@given(growing())
def test_deltas_of_any_ids_are_the_text_and_end_with_characters(kind, drawn):
    ids, sizes = drawn
    pieces = model(kind)
    ids = [i % pieces.get_piece_size() for i in ids]
    check(decoder(pieces), ids)
    check(decoder(pieces), ids, sizes)


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.sampled_from([*TEXTS, "\u0301", "\u200d", "🇪", "x", " "])).map("".join) | st.text())
def test_deltas_of_any_text_are_the_text_and_end_with_characters(kind, text):
    pieces = model(kind)
    check(decoder(pieces), pieces.encode(text))


def tatoeba(folder, column):
    path = DATA / folder / "test.tsv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [line.split("\t")[column] for line in lines]


@pytest.mark.parametrize(("folder", "column"), [("tatoeba-zh-en", 0), ("tatoeba-zh-en", 1), ("tatoeba-de-en", 0)])
def test_deltas_of_real_sentences_are_the_sentences(folder, column):
    pieces = model("unigram")
    sentences = tatoeba(folder, column)[:300]
    for sentence in sentences:
        deltas = check(decoder(pieces), pieces.encode(sentence))
        assert len(deltas[-1]) <= 4, "no more than the last token is left"


def words(ids, alignment):
    """Each token is a word, 0 ends the word before."""
    return " ".join(f"w{i}" for i in ids).replace(" w0", ".")


def test_a_delta_is_what_tokens_were_certain_before_the_last_one():
    assert stream(words, (7, 8, 0, 9)) == ["", "w7", " w8", ".", " w9"]
    assert stream(words, (7, 8, 0, 9), [3]) == ["w7 w8", ". w9"]


def test_what_a_token_makes_of_the_one_before_is_waited_for():
    pieces = model("char")
    ids = [
        pieces.piece_to_id(piece)
        for piece in ("▁", "e", "\u0301", "<0xCC>", "<0xA3>", "t", "<0xE4>", "<0xBD>", "<0xA0>", "t")
    ]
    assert stream(decoder(pieces), ids) == ["", "", "", "", "", "e\u0301\u0323", "", "", "t", "你", "t"]


def test_the_rest_comes_whole_where_nothing_was_certain():
    assert stream(words, (1, 2, 3), [0, 1]) == ["", "", "w1 w2 w3"]
    assert stream(words, ()) == [""]


def test_the_alignment_reaches_the_tokenizer():
    seen = []

    def decode(ids, alignment):
        seen.append([(i, aligned.source_token) for i, aligned in zip(ids, alignment, strict=True)])
        return "x" * len(ids)

    TextStream(decode).push((5, 6), (AlignedToken(0, 1.0), AlignedToken(3, 0.5)))
    assert seen == [[(5, 0), (6, 3)], [(5, 0)]]


def test_text_that_is_taken_back_ends_the_deltas():
    texts = {1: "a", 2: "a b c", 3: "a b c d", 4: "A B C D", 5: "A B C D E"}
    decode = lambda ids, alignment: texts.get(len(ids), "")  # noqa: E731
    assert stream(decode, (1, 2, 3, 4, 5)) == ["", "a", " b c", "", "", ""]
