"""What Marian writes, read as PyYAML reads it; and lists of words."""

from __future__ import annotations

import contextlib
import json
import random
import re

import pytest
import torch
import yaml

from helpers.marian_files import MarianModel, settings_of
from translane_export.core.errors import ExportError
from translane_export.sources.marian_files import read_ids, read_settings
from translane_export.sources.notebook import END, PAD, START, UNK, SpecialWords, number_words, word_tokenizer
from translane_server.bundle.manifest import JsonTokenizerEntry, SpecialIds
from translane_server.text.tokenizer import ModelIds, make_tokenizer

SETTINGS = r"""
# written by hand
version: v1.9.2 12cd13e 2020-01-17 10:01:34 -0800
empty: ""
nothing: ~
quoted: 'it''s'
escaped: "a\tb\"c\\d\u2581\x41\n"
colon: "a: b"
negative: -3
number: 0.6
scientific: 1e-06
flag: true
disabled: false
list:
  - one
  - 2
  - "3"
at-the-margin:
- 0.9
- false
flow: [1, two, "three"]
none:
  []
"""


def test_settings_are_those_of_yaml():
    expected = yaml.safe_load(SETTINGS)
    expected["scientific"] = 1e-06  # YAML 1.1 takes it for text, as it has no dot
    assert read_settings(SETTINGS) == expected


@pytest.mark.parametrize("model", [MarianModel(), MarianModel(pre_norm=True, embedding_norm=True)])
def test_settings_of_a_model(model):
    text = settings_of(model)
    assert read_settings(text) == yaml.safe_load(text)


def test_deeper_levels_are_passed_over():
    assert read_settings("a: 1\nb:\n  c: 2\n  d:\n    - 3\ne: 4\n") in (
        {"a": 1, "b": None, "e": 4},
        {"a": 1, "b": [3], "e": 4},
    )


def test_ids_are_those_of_yaml():
    pieces = [
        "</s>",
        "<unk>",
        "\u2581a",
        ":",
        "a:b",
        "'",
        '"',
        '\\"',
        "it's",
        "#",
        "-",
        "\u2028",
        "\x85",
        ">>fra<<",
        "0",
    ]
    text = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {id_}\n" for id_, piece in enumerate(pieces))
    assert read_ids(text) == {piece: id_ for id_, piece in enumerate(pieces)}
    assert read_ids("a: 0\n'it''s': 1\n\"\\u2581b\": 2\n\n") == {"a": 0, "it's": 1, "\u2581b": 2}
    assert read_ids("a: 0\r\nb: 1\r\n") == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 0\nb\n", "line 2 is no piece"),
        ("a: -1", "line 1 is no"),
        ("a: 0\na: 1", "line 2 has a piece of a line before"),
    ],
)
def test_what_is_no_vocabulary(text, message):
    with pytest.raises(ValueError, match=message):
        read_ids(text)


def test_any_text_is_read_or_refused():
    pick = random.Random(3)
    for _ in range(3000):
        text = "".join(
            pick.choices(["a", ":", " ", "\n", "- ", '"', "\\", "'", "[", "]", "#", "1", "\\U00110000"], k=12)
        )
        for read in (read_settings, read_ids):
            with contextlib.suppress(ValueError):
                read(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("written", "name"),
    [
        ('"' + "\\" * 50_000 + '"', "\\" * 25_000),
        ("'" * 50_002, "'" * 25_000),
        ("a" * 100_000, "a" * 100_000),
        ("a" + " " * 100_000 + "b", "a" + " " * 100_000 + "b"),
        ("1" * 100_000, "1" * 100_000),
    ],
    ids=["backslashes", "quotes", "letters", "spaces", "digits"],
)
def test_a_long_line_takes_no_long_time_and_loses_nothing(written, name):
    for read in (read_settings, read_ids):
        assert read(f"{written}: 1") == {name: 1}
        with pytest.raises(ValueError, match="line 1 is no"):
            read(written[:-1])
    assert read_settings(f"a: {written}") == {"a": name}


# Lists of words.


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
