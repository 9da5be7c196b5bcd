"""Text to ids and back, with a SentencePiece model of letters, one with byte fallback, and the bundled ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.refusals import refusal
from helpers.vocabularies import vocabulary
from translane_server.bundle.manifest import JsonTokenizerEntry, SentencePieceTokenizerEntry, SpecialIds
from translane_server.core.budget import UNLIMITED, Budget, WorkEndedError
from translane_server.text.tokenizer import ModelIds, Tokenizer, make_tokenizer, tokenize
from translane_server.text.vocabularies import SentencePieceVocabulary

EOS = 3
PADDED = 5  # ids that the model has and SentencePiece has not
MODELS = Path(__file__).parents[4] / "models" / "zh-en"


def train(size, **options):
    sentences = ["the quick brown fox jumps over the lazy dog"]
    ids: dict[str, Any] = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": EOS}
    model = vocabulary(sentences, size, model_type="char", **ids, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def load(name):
    return sentencepiece.SentencePieceProcessor(model_file=str(MODELS / name))


LETTERS = train(100)
BYTES = train(400, byte_fallback=True)
SOURCE, TARGET = load("source.spm"), load("target.spm")


def make_pair(source, target):
    ours, theirs = (SentencePieceVocabulary(side, side.get_piece_size() + PADDED) for side in (source, target))
    return Tokenizer(ours, theirs, EOS)


letters = make_pair(LETTERS, LETTERS)
with_bytes = make_pair(BYTES, BYTES)
bundled = make_pair(SOURCE, TARGET)
kinds = pytest.mark.parametrize(
    ("tokenizer", "pieces"),
    [(letters, LETTERS), (with_bytes, BYTES), (bundled, TARGET)],
    ids=["char", "bytes", "zh-en"],
)


def test_ids_without_a_piece_are_nothing():
    size = LETTERS.get_piece_size()
    assert letters.decode([[*LETTERS.encode("fox"), size, size + PADDED - 1]]) == ["fox"]
    assert letters.target_surfaces[size:] == (b"",) * PADDED
    assert letters.target_pieces([size]) == [f"<{size}>"]


@kinds
@given(data=st.data())
def test_texts_are_what_sentencepiece_decodes_to(tokenizer, pieces, data):
    """Where the two differ is said in the docstring: spaces at the start, and each byte of a broken character.

    Control tokens are left out: between the bytes of a character they break it for SentencePiece alone.
    """
    written = [number for number in range(pieces.get_piece_size()) if not pieces.is_control(number)]
    ids = data.draw(st.lists(st.sampled_from(written), max_size=30))
    expected = pieces.decode(ids)
    ours = tokenizer.decode([ids])[0]
    assert ours == b"".join(tokenizer.target_surfaces[i] for i in ids).removeprefix(b" ").decode(errors="replace")
    assert collapse(ours) == collapse(expected)


def collapse(text):
    return "".join(text.lstrip(" ").replace("\ufffd", ""))


@kinds
@given(text=st.text())
def test_encoded_texts_are_what_sentencepiece_decodes_to_and_each_token_is_of_a_part(tokenizer, pieces, text):
    ids = pieces.encode(text)
    assert tokenizer.decode([ids])[0].lstrip(" ") == pieces.decode(ids).lstrip(" ")
    spans = tokenizer.source_spans(text)
    assert len(spans) == len(tokenizer.encode([text])[0])
    places = [span for span in spans if span]
    assert places == sorted(places)
    assert all(0 <= start < end <= len(text) for start, end in places)


def test_unknown_tokens_are_replaced_where_they_are():
    (ids,) = letters.encode_target(["the \u4f60 fox \u597d"])
    first, second = (place for place, token in enumerate(ids) if token == LETTERS.unk_id())
    assert letters.decode([ids, ids], [{first: "\u2581A b"}, {first: "C", second: "D"}]) == [
        "the \u2581A b fox  \u2047 ",
        "the C fox D",
    ]


def written(tokenizer, text):
    """What each token of a text stands for."""
    return [text[slice(*span)] if span else "" for span in tokenizer.source_spans(text)]


def test_tokens_stand_for_the_source_as_it_was_written():
    """The bundled model's rules turn traditional characters into simplified ones, and wide ones into narrow ones."""
    text = "我愛北京，天安門"
    assert bundled.source_pieces(bundled.encode([text])[0]) == ["▁我爱", "北", "京", ",", "天", "安", "门", "</s>"]
    assert written(bundled, text) == ["我愛", *"北京，天安門", ""]


@pytest.mark.parametrize(
    ("tokenizer", "text", "spans"),
    [
        (bundled, "㈱", [(0, 1)] * 3),
        (bundled, "㍿㍿", [(0, 1)] * 4 + [(1, 2)] * 4),
        (with_bytes, " 北 ", [(1, 2)] * 3),
    ],
)
def test_the_tokens_of_one_character_share_it(tokenizer, text, spans):
    assert tokenizer.source_spans(text) == [None, *spans, None]


IDS = {"</s>": 0, "<unk>": 1, "o": 2, "f": 3, "\u2581": 4, "\u4f60": 5, ">>fr<<": 6, "<pad>": 7}
SPECIAL = SpecialIds(pad=7, unk=1, bos=0, eos=0, decoder_start=7)
MAPPED = SentencePieceTokenizerEntry(source="a.spm", target="a.spm", source_ids="ids.json", target_ids="ids.json")


def make(entry=MAPPED, size=9, **files):
    stored = {"a.spm": LETTERS.serialized_model_proto(), "ids.json": json.dumps(IDS).encode()}
    files = stored | {name.replace("_", "."): content for name, content in files.items()}
    return make_tokenizer(entry, ModelIds(SPECIAL, size, size), files.__getitem__)


def test_a_model_numbers_its_pieces_as_it_likes():
    tokenizer = make()
    assert tokenizer.encode(["fox"]) == [[4, 3, 2, 1, 0]], "x is no piece of the model"
    assert tokenizer.encode_target(["fo \u4f60"]) == [[4, 3, 2, 4, 5]], "what SentencePiece does not know the model may"
    assert tokenizer.source_pieces([4, 3, 8]) == ["\u2581", "f", "<8>"]
    assert tokenizer.decode([[4, 3, 2, 4, 5], [3, 1, 3], [8]]) == ["fo \u4f60", "f \u2047 f", ""]


def test_sources_may_have_no_end():
    tokenizer = make(replace(MAPPED, source_eos=False))
    assert tokenizer.encode(["fo", ""]) == [[4, 3, 2], []]
    assert tokenizer.source_spans("fo") == [None, (0, 1), (1, 2)]


def byte_level():
    bpe = tokenizers.models.BPE(
        vocab={"a": 0, "\u0120": 1, "\u00c3": 2, "\u00a9": 3, "\u0120a": 4}, merges=[("\u0120", "a")]
    )
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>", "<unk>"])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=5)
    return tokenizer


JSON = JsonTokenizerEntry(file="t.json")


def make_json(tokenizer, size=9):
    special = SpecialIds(pad=5, unk=6, bos=5, eos=5, decoder_start=5)
    content = tokenizer if isinstance(tokenizer, bytes) else tokenizer.to_str().encode()
    return make_tokenizer(JSON, ModelIds(special, size, size), {"t.json": content}.__getitem__)


def test_a_tokenizer_of_bytes():
    tokenizer = make_json(byte_level())
    assert tokenizer.encode(["a a\u00e9", " \n"]) == [[0, 4, 2, 3, 5], []]
    assert tokenizer.source_spans("a a\u00e9") == [(0, 1), (1, 3), (3, 4), (3, 4), None]
    assert tokenizer.encode_target(["a</s>a"]) == [[0, 0]]
    assert tokenizer.decode([[4, 2, 3, 5, 8], [2], [0, 6, 0]], [{}, {}, {1: "b"}]) == ["a\u00e9", "\ufffd", "aba"]
    assert tokenizer.target_pieces([4, 5, 8]) == ["\u0120a", "</s>", "<8>"]


def test_special_tokens_may_lie_beyond_the_models_ids():
    tokenizer = byte_level()
    tokenizer.add_special_tokens(["<mask>"])
    made = make_json(tokenizer, size=7)
    assert made.encode(["a<mask>a"]) == [[0, 0, 0, 5]], "the letters that the vocabulary has"
    assert len(made.target_surfaces) == 7


def test_a_tokenizer_of_pieces_with_byte_fallback():
    vocabulary = {"<unk>": 6, "</s>": 5, "\u2581": 0, "a": 1, "<0xC3>": 2, "<0xA9>": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    decoders = tokenizers.decoders
    tokenizer.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    made = make_json(tokenizer)
    assert made.encode_target([" a\u00e9"]) == [[0, 1, 2, 3]]
    assert made.decode([[0, 1, 2, 3, 0, 1]]) == ["a\u00e9 a"]


def with_decoder(decoder):
    tokenizer = byte_level()
    tokenizer.decoder = decoder
    return tokenizer


@pytest.mark.parametrize(
    ("failing", "sentence"),
    [
        (lambda: make(a_spm=b"x"), "a.spm is not a SentencePiece model"),
        (lambda: make(ids_json=b"{"), "ids.json is not a JSON object of ids by piece"),
        (lambda: make(ids_json=b"[]"), "ids.json is not a JSON object of ids by piece"),
        (lambda: make(ids_json=b'{"a": true}'), "ids.json is not a JSON object of ids by piece"),
        (lambda: make(size=7), "ids.json has the id 7, and the model embeds 7"),
        (
            lambda: make(SentencePieceTokenizerEntry(source="a.spm", target="a.spm")),
            f"a.spm has {len(LETTERS)} pieces, and the model embeds 9",
        ),
        (lambda: make_json(b"{}"), "t.json is not a tokenizer.json"),
        (lambda: make_json(byte_level(), size=4), "t.json has the id 6, and the model embeds 4"),
        (
            lambda: make_json(with_decoder(tokenizers.decoders.WordPiece())),
            "t.json has a decoder that is not supported",
        ),
        (lambda: make_json(with_decoder(tokenizers.decoders.Fuse())), "t.json has no decoder that is supported"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(failing, sentence):
    assert sentence in refusal(ValueError, failing)


@pytest.mark.parametrize("ids", [None, {"▁": 4, "f": 5, "o": 6}])
def test_sentencepiece_gets_one_text_at_a_time(monkeypatch, ids):
    """It starts a thread for a list of them, which takes twenty times as long as a sentence."""
    given = []
    encode = LETTERS.encode

    def seen_encode(text, **options):
        given.append(text)
        return encode(text, **options)

    monkeypatch.setattr(LETTERS, "encode", seen_encode)
    vocabulary = SentencePieceVocabulary(LETTERS, 100, unknown=1, ids=ids)
    expected = [encode("fo"), encode("of")] if ids is None else [[4, 5, 6], [4, 6, 5]]
    assert vocabulary.encode(["fo", "of"]) == expected
    assert given == ["fo", "of"]


def test_long_texts_are_tokenized_in_parts_between_which_the_work_ends():
    seen: list[list[int]] = []
    budget = Budget()

    def encode(texts):
        seen.append(list(map(len, texts)))
        budget.end()
        return [[len(text)] for text in texts]

    texts = ["x" * length for length in (30_000, 30_000, 30_000, 100_000, 1, 0, 65_536)]
    assert tokenize(encode, texts, UNLIMITED) == [[len(text)] for text in texts]
    assert seen == [[30_000] * 2, [30_000], [100_000], [1, 0], [65_536]]
    assert tokenize(encode, [], UNLIMITED) == []
    budget = Budget()
    with pytest.raises(WorkEndedError):
        tokenize(encode, texts, budget)
    assert seen[5:] == [[30_000] * 2]
