"""Text to ids and back, with a SentencePiece model of letters, one with byte fallback, and the bundled ones."""

import io
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from translane_server.sentencepiece_tokenizer import SentencePieceTokenizer, SentencePieceVocabulary

EOS = 3
PADDED = 5  # ids that the model has and SentencePiece has not
MODELS = Path(__file__).parents[3] / "models" / "zh-en"


def train(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the quick brown fox jumps over the lazy dog"]),
        model_writer=model,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=EOS,
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def load(name):
    return sentencepiece.SentencePieceProcessor(model_file=str(MODELS / name))


LETTERS = train(model_type="char", vocab_size=100)
BYTES = train(model_type="char", vocab_size=400, byte_fallback=True)
SOURCE, TARGET = load("source.spm"), load("target.spm")


def make_tokenizer(source, target):
    sides = (SentencePieceVocabulary(side, side.get_piece_size() + PADDED) for side in (source, target))
    return SentencePieceTokenizer(*sides, EOS)


letters = make_tokenizer(LETTERS, LETTERS)
with_bytes = make_tokenizer(BYTES, BYTES)
bundled = make_tokenizer(SOURCE, TARGET)
kinds = pytest.mark.parametrize(
    ("tokenizer", "pieces"),
    [(letters, LETTERS), (with_bytes, BYTES), (bundled, TARGET)],
    ids=["char", "bytes", "zh-en"],
)


def test_sources_end_with_the_end_of_sentence():
    first, second = letters.encode(["fox", "dog fox"])
    assert first == [*LETTERS.encode("fox"), EOS]
    assert second[-1] == EOS


def test_targets_have_no_end_of_sentence():
    assert bundled.encode_target(["I am here.", ""]) == [TARGET.encode("I am here."), []]


@pytest.mark.parametrize("text", ["", " ", "\t \n"])
def test_a_text_without_tokens_has_no_ids(text):
    assert letters.encode([text, "fox"])[0] == []
    assert letters.source_surfaces(text) == []


def test_there_and_back():
    ids = letters.encode(["the lazy dog"])[0]
    assert letters.decode([ids[:-1], []]) == ["the lazy dog", ""]


def test_ids_without_a_piece_are_nothing():
    size = LETTERS.get_piece_size()
    assert letters.decode([[*LETTERS.encode("fox"), size, size + PADDED - 1]]) == ["fox"]
    assert letters.target_surfaces[size:] == (b"",) * PADDED
    assert letters.target_pieces([size]) == [f"<{size}>"]


@kinds
def test_control_tokens_are_nothing(tokenizer, pieces):
    assert [tokenizer.target_surfaces[i] for i in (0, 2, EOS)] == [b"", b"", b""]
    assert len(tokenizer.target_surfaces) == pieces.get_piece_size() + PADDED


@kinds
@given(data=st.data())
def test_texts_are_what_sentencepiece_decodes_to(tokenizer, pieces, data):
    """Where the two differ is said in the docstring: spaces at the start, and each byte of a broken character."""
    ids = data.draw(st.lists(st.integers(0, pieces.get_piece_size() - 1), max_size=30))
    expected = pieces.decode(ids)
    ours = tokenizer.decode([ids])[0]
    assert ours == b"".join(tokenizer.target_surfaces[i] for i in ids).removeprefix(b" ").decode(errors="replace")
    assert collapse(ours) == collapse(expected)


def collapse(text):
    return "".join(text.lstrip(" ").replace("\ufffd", ""))


@kinds
@given(text=st.text())
def test_texts_that_were_encoded_are_what_sentencepiece_decodes_to(tokenizer, pieces, text):
    ids = pieces.encode(text)
    assert tokenizer.decode([ids])[0].lstrip(" ") == pieces.decode(ids).lstrip(" ")


def test_a_broken_character_is_replaced():
    half = [BYTES.piece_to_id("<0xE4>"), BYTES.piece_to_id("<0xBD>")]
    whole = [*half, BYTES.piece_to_id("<0xA0>")]
    assert with_bytes.decode([whole, [*half, *BYTES.encode("fox")]]) == ["\u4f60", "\ufffd fox"]


@pytest.mark.parametrize("text", ["\x00", "🦊", "\u202efox", "e\u0301", "\U0010ffff", "fox\r\nfox"])
def test_any_unicode_has_ids_and_a_text(text):
    assert isinstance(letters.decode([letters.encode([text])[0][:-1]])[0], str)


def test_unknown_tokens_are_replaced_where_they_are():
    (ids,) = letters.encode_target(["the \u4f60 fox \u597d"])
    first, second = (place for place, token in enumerate(ids) if token == LETTERS.unk_id())
    assert letters.decode([ids, ids], [{first: "\u2581A b"}, {first: "C", second: "D"}]) == [
        "the \u2581A b fox  \u2047 ",
        "the C fox D",
    ]


def test_only_unknown_tokens_are_replaced():
    with pytest.raises(AssertionError):
        letters.decode([LETTERS.encode("fox")], [{0: "x"}])


def test_pieces():
    ids = letters.encode(["a fox"])[0]
    assert letters.source_pieces(ids) == ["\u2581", "a", "\u2581", "f", "o", "x", "</s>"]
    assert bundled.target_pieces([1, *TARGET.encode("I am"), EOS]) == ["<unk>", "\u2581I", "\u2581am", "</s>"]


def test_surfaces_are_the_source_as_it_was_written():
    """The bundled model's rules turn traditional characters into simplified ones, and wide ones into narrow ones."""
    text = "我愛北京，天安門"
    assert bundled.source_pieces(bundled.encode([text])[0]) == ["▁我爱", "北", "京", ",", "天", "安", "门", "</s>"]
    assert bundled.source_surfaces(text) == ["我愛", *"北京，天安門", ""]


@pytest.mark.parametrize(("text", "surfaces"), [("㈱", ["", "㈱", "㈱", "㈱", ""]), (" 北 ", ["", *"北北北", ""])])
def test_the_tokens_of_one_character_share_it(text, surfaces):
    tokenizer = bundled if text == "㈱" else with_bytes
    found = tokenizer.source_surfaces(text)
    assert [surface.strip() for surface in found] == surfaces[len(surfaces) - len(found) :]


@pytest.mark.parametrize("tokenizer", [letters, with_bytes, bundled], ids=["char", "bytes", "zh-en"])
@given(text=st.text())
def test_every_source_token_has_a_surface_of_the_text(tokenizer, text):
    surfaces = tokenizer.source_surfaces(text)
    assert len(surfaces) == len(tokenizer.encode([text])[0])
    assert all(surface in text for surface in surfaces)
