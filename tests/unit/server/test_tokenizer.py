"""Text to ids and back, with a SentencePiece model of letters."""

import io

import pytest
import sentencepiece

from translane_server.tokenizer import SentencePieceTokenizer

EOS = 3


@pytest.fixture(scope="module")
def pieces():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the quick brown fox jumps over the lazy dog"]),
        model_writer=model,
        model_type="char",
        vocab_size=100,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=EOS,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.fixture
def tokenizer(pieces):
    return SentencePieceTokenizer(pieces, pieces, EOS)


def test_sources_end_with_the_end_of_sentence(tokenizer, pieces):
    first, second = tokenizer.encode(["fox", "dog fox"])
    assert first == [*pieces.encode("fox"), EOS]
    assert second[-1] == EOS


@pytest.mark.parametrize("text", ["", " ", "\t \n"])
def test_a_text_without_tokens_has_no_ids(tokenizer, text):
    assert tokenizer.encode([text, "fox"])[0] == []


def test_there_and_back(tokenizer):
    ids = tokenizer.encode(["the lazy dog"])[0]
    assert tokenizer.decode([ids[:-1], []]) == ["the lazy dog", ""]


def test_ids_without_a_piece_are_nothing(tokenizer, pieces):
    assert tokenizer.decode([[*pieces.encode("fox"), pieces.get_piece_size(), 31_999]]) == ["fox"]


@pytest.mark.parametrize("text", ["\x00", "🦊", "\u202efox", "e\u0301", "\U0010ffff", "fox\r\nfox"])
def test_any_unicode_has_ids_and_a_text(tokenizer, text):
    assert isinstance(tokenizer.decode([tokenizer.encode([text])[0][:-1]])[0], str)
