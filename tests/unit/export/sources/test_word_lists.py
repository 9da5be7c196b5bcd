from __future__ import annotations

import json
import random
import re

import pytest
import torch

from translane_export.errors import ExportError
from translane_export.sources.notebook import END, PAD, START, UNK, SpecialWords, number_words, word_tokenizer
from translane_server.bundle.manifest import JsonTokenizerEntry, SpecialIds
from translane_server.text.tokenizer import ModelIds, make_tokenizer

SPECIAL = SpecialWords(pad="PAD", unk="?", start="BOS", end="EOS")
SOURCE = ("PAD", "?", "BOS", "EOS", "der", "hund", ".", "über")
TARGET = ("PAD", "?", "BOS", "EOS", "the", "dog", "!", " ", "a b")
IDS = SpecialIds(pad=PAD, unk=UNK, bos=START, eos=END, decoder_start=START)


def make(*, lowercase=False, source_eos=True, **options):
    files = {
        "s.json": word_tokenizer(SOURCE, lowercase=lowercase, **options),
        "t.json": word_tokenizer(TARGET, lowercase=lowercase, **options),
    }
    entry = JsonTokenizerEntry(file="s.json", target="t.json", source_eos=source_eos)
    return make_tokenizer(entry, ModelIds(IDS, len(SOURCE), len(TARGET)), files.__getitem__)


def test_each_side_has_its_own_words():
    tokenizer = make()
    assert tokenizer.encode(["der hund .", "the dog"]) == [[4, 5, 6, END], [UNK, UNK, END]]
    assert tokenizer.encode_target(["the dog !", "der"]) == [[4, 5, 6], [UNK]]
    assert tokenizer.source_pieces([4, 3]) == ["der", "EOS"]
    assert tokenizer.target_pieces([4, 3]) == ["the", "EOS"]
    assert len(tokenizer.target_surfaces) == len(TARGET)


def test_unknown_words_side_by_side_are_one_token_each():
    assert make().encode(["x y der, hund"]) == [[UNK, UNK, UNK, 5, END]]


def test_texts_without_words():
    assert make().encode(["", " \t\u3000"]) == [[], []]
    assert make().source_surfaces("") == []


def test_special_words_of_a_text_are_unknown():
    assert make().encode(["PAD der EOS ?"]) == [[UNK, 4, UNK, UNK, END]]


def test_words_are_joined_by_spaces():
    tokenizer = make()
    assert tokenizer.decode([[4, 5, 6], [UNK, 5, UNK], [], [8, PAD, 7, 5]]) == [
        "the dog !", "⁇ dog ⁇", "", "a b   dog",
    ]  # fmt: skip


def test_surfaces_are_parts_of_the_text():
    assert make(lowercase=True).source_surfaces("Der  ÜBER x") == ["Der", "ÜBER", "x", ""]


def test_sources_may_have_no_end():
    assert make(source_eos=False).encode(["der"]) == [[4]]


def characters():
    """Of every kind: letters, accents, signs, spaces, controls, and characters beyond the first plane."""
    return [chr(code) for code in (*range(1, 0x3000), *range(0x3000, 0xD800, 37), *range(0xE000, 0x20000, 113))]


@pytest.mark.parametrize("lowercase", [False, True])
def test_texts_split_as_python_splits_them(lowercase):
    """All but Σ, which Python writes in two ways."""
    pick = random.Random(0)
    known = characters()
    for _ in range(200):
        text = "".join(pick.choice([*known[:160], pick.choice(known)]) for _ in range(40)).replace("Σ", "s")
        words = (text.lower() if lowercase else text).split()
        vocabulary = list(dict.fromkeys(["PAD", "?", "BOS", "EOS", *words]))
        entry, special = JsonTokenizerEntry(file="w"), ModelIds(IDS, len(vocabulary), len(vocabulary))
        files = {"w": word_tokenizer(vocabulary, lowercase=lowercase)}
        tokenizer = make_tokenizer(entry, special, files.__getitem__)
        expected = [vocabulary.index(word) for word in words]
        assert tokenizer.encode_target([text]) == [[UNK if number < 4 else number for number in expected]]


@pytest.mark.parametrize("pattern", [r"\w+|[^\w\s]", r"[a-zäöüß]+|[.!?]", r"\d+|\D"])
def test_patterns_find_what_re_finds(pattern):
    text = "Der Hund, 12 Jahre — über… alles! 3.5"
    words = re.findall(pattern, text.lower())
    vocabulary = list(dict.fromkeys(["PAD", "?", "BOS", "EOS", *words]))
    content = word_tokenizer(vocabulary, lowercase=True, pattern=pattern)
    special = ModelIds(IDS, len(vocabulary), len(vocabulary))
    tokenizer = make_tokenizer(JsonTokenizerEntry(file="w"), special, lambda _: content)
    assert tokenizer.target_pieces(tokenizer.encode_target([text])[0]) == words


def test_the_order_of_a_list():
    numbered = number_words(["a", "EOS", "b", "PAD", "?", "BOS"], SPECIAL, side="source")
    assert numbered.words == ("PAD", "?", "BOS", "EOS", "a", "b")
    rows = torch.arange(12.0).reshape(6, 2)
    assert torch.equal(numbered.reorder(rows), rows[[3, 4, 5, 1, 0, 2]])


def test_words_that_may_be_missing():
    numbered = number_words(["a", "PAD"], SPECIAL, side="source", optional=("?", "BOS", "EOS"))
    assert numbered.words == ("PAD", "?", "BOS", "EOS", "a")
    assert numbered.reorder(torch.tensor([5.0, 6.0]), -1.0).tolist() == [6, -1, -1, -1, 5]


@pytest.mark.parametrize(
    ("words", "special", "sentence"),
    [
        (["PAD", "?", "BOS", "EOS", "a", "a"], SPECIAL, "source_words: 'a' is there twice, as words 4 and 5"),
        (["PAD", "?", "EOS"], SPECIAL, "source_words: the special word 'BOS' is not there"),
        (["PAD", "?", "BOS", "EOS", 3], SPECIAL, "source_words: word 4 is 3, and words are strings"),
        (["PAD"], SpecialWords(end="<s>"), "special_words: <pad>, <unk>, <s>, <s> are not four different words"),
    ],
)
def test_what_is_wrong_with_a_list(words, special, sentence):
    with pytest.raises(ExportError) as raised:
        number_words(words, special, side="source")
    assert str(raised.value) == sentence


@pytest.mark.parametrize(("pattern", "sentence"), [("(", "is no regular expression"), ("a" * 1001, "1,001 characters")])
def test_patterns_that_are_none(pattern, sentence):
    with pytest.raises(ExportError, match=sentence):
        word_tokenizer(SOURCE, lowercase=False, pattern=pattern)


def test_what_is_wrong_with_either_file():
    entry, ids = JsonTokenizerEntry(file="s.json", target="t.json"), ModelIds(IDS, 8, 8)
    files = {"s.json": word_tokenizer(SOURCE, lowercase=False), "t.json": word_tokenizer(TARGET, lowercase=False)}
    with pytest.raises(ValueError, match=r"t.json has the id 8, and the model embeds 8"):
        make_tokenizer(entry, ids, files.__getitem__)
    with pytest.raises(ValueError, match=r"s.json is not a tokenizer.json"):
        make_tokenizer(entry, ids, (files | {"s.json": b"{}"}).__getitem__)
    pieces = json.loads(files["s.json"])
    pieces["model"] = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    with pytest.raises(ValueError, match="has no decoder that is supported"):
        make_tokenizer(entry, ids, (files | {"s.json": json.dumps(pieces).encode()}).__getitem__)
