import random

import pytest
import torch

from helpers.commands import train as main
from translane_export.core.checkpoint import load_checkpoint
from translane_export.train.stand_ins import Kind, Meaning, Part, Replacements, Replacer, find_parts, learn_lexicon
from translane_export.train.vocabulary import Vocabulary, train_vocabulary
from translane_server.text.stand_ins import STAND_INS

LEXICON = {"汤姆": Meaning("Tom", Kind.NAME), "书": Meaning("book", Kind.WORD)}


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("我有12本", "I have 12", [("12", "12", Kind.NUMBER)]),
        ("10,000 元 7:30", "7:30, 10,000 yen", [("10,000", "10,000", Kind.NUMBER), ("7:30", "7:30", Kind.NUMBER)]),
        ("从2到2", "from 2 to 2", []),  # twice: nobody knows which is which
        ("3月", "13 March", []),  # a digit of another number
        ("Anna在这", "Anna is here", [("Anna", "Anna", Kind.NAME)]),
        ("汤姆的书", "Tom's book", [("汤姆", "Tom", Kind.NAME), ("书", "book", Kind.WORD)]),
        ("书和书", "a book and books", []),
        ("汤姆", "Tomorrow", []),
    ],
)
def test_what_is_once_on_either_side_may_be_replaced(source, target, found):
    parts = find_parts(source, target, LEXICON)
    assert [(source[slice(*part.source)], target[slice(*part.target)], part.kind) for part in parts] == found


def test_a_word_is_learnt_whole_and_no_word_that_is_everywhere():
    pairs = [
        (f"{who[0]}{verb}{place}家里", f"{who[1]} is at home, {place}")
        for who in (("汤姆", "Tom"), ("他", "He"))
        for verb in "在去"
        for place in "一二三四五六七八九十"
    ]
    lexicon = learn_lexicon(pairs)
    assert lexicon["汤姆"] == Meaning("Tom", Kind.NAME)
    assert not {"汤", "姆", "汤姆在"} & lexicon.keys()
    assert all(meaning.target not in ("is", "at", "home") for meaning in lexicon.values())


def test_both_sides_get_the_same_in_their_places():
    source, target = "汤姆有12本书。", "There are 12 books for Tom."
    parts = find_parts(source, target, LEXICON)
    replacer = Replacer(share=1, stand_ins=1)
    drawn = {replacer.draw(source, target, parts, random.Random(seed)) for seed in range(200)}
    assert ("⟨1⟩有⟨2⟩本书。", "There are ⟨2⟩ books for ⟨1⟩.") in drawn
    assert {s for pair in drawn for s in STAND_INS if s in pair[0]} == set(STAND_INS)
    for one, other in drawn:
        assert [one.count(symbol) for symbol in STAND_INS] == [other.count(symbol) for symbol in STAND_INS]
        assert max(other.count(symbol) for symbol in STAND_INS) == 1


def test_other_numbers_and_names_come_in_their_place_too():
    parts = [Part((0, 2), (0, 2), Kind.NUMBER), Part((3, 6), (3, 6), Kind.NAME)]
    replacer = Replacer(share=1, stand_ins=0, names=["Boston"])
    drawn = {replacer.draw("12 Tom", "12 Tom", parts, random.Random(seed))[1] for seed in range(300)}
    assert any(text.endswith("Boston") and not text.startswith("12") for text in drawn)
    assert not any(symbol in text for text in drawn for symbol in STAND_INS)


def test_additions_are_on_both_sides():
    replacer = Replacer(share=0, added=1, stand_ins=1)
    drawn = {replacer.draw("他来了。", "He came.", (), random.Random(seed)) for seed in range(100)}
    assert ("⟨1⟩：他来了。", "⟨1⟩: He came.") in drawn
    assert ("他来了（⟨1⟩）。", "He came (⟨1⟩).") in drawn


def test_the_seed_decides_what_is_drawn():
    replacements = Replacements([("有12", "has 12"), ("没有", "none")] * 50, 0.5)
    assert replacements.draw((1, 0)) == replacements.draw((1, 0))
    assert replacements.draw((1, 0)) != replacements.draw((1, 1))
    assert 10 < sum(row % 2 == 0 for row in replacements.draw((1, 0))) < 40


@pytest.mark.slow
def test_stand_ins_and_digits_are_single_pieces(tmp_path):
    texts = [f"in 19{number} or 20{number}" for number in range(10, 99)]
    vocabulary = train_vocabulary(
        texts, tmp_path / "a.spm", kind="unigram", size=108, normalization="nmt_nfkc_t2s", stand_ins=True
    )
    assert set(STAND_INS) <= set(vocabulary.pieces())
    assert not [piece for piece in vocabulary.pieces() if len(piece) > 1 and any(sign.isdigit() for sign in piece[:-2])]
    text = "or ⟨1⟩ in⟨9⟩ 1987"
    assert vocabulary.decode(vocabulary.encode([text])) == [text]
    assert vocabulary.normalize("  OR　⟨1⟩") == "OR ⟨1⟩"


@pytest.mark.slow
def test_a_run_with_stand_ins_trains_on_them_and_its_vocabularies_have_them(run_flags, tmp_path):
    sizes = {"source_vocabulary_size": 124, "target_vocabulary_size": 112}
    assert main(run_flags(stand_ins=0.5, **sizes)) == 0
    for path in load_checkpoint(tmp_path / "run" / "best").tokenizer.sentencepiece_models():
        assert set(STAND_INS) <= set(Vocabulary(path).pieces())


@pytest.mark.slow
@pytest.mark.parametrize("tied", ["two-way", "none"])
def test_a_checkpoint_without_stand_ins_gets_them(run_flags, tmp_path, tied):
    assert main(run_flags(max_steps=10, tie_embeddings=tied)) == 0
    best, lines = tmp_path / "run" / "best", tmp_path / "train.tsv"
    flags = [f"--init={best}", f"--train={lines}", f"--valid={lines}", f"--output={tmp_path / 'new'}"]
    assert main([*flags, "--stand-ins=0.3", "--max-steps=1", "--learning-rate=1e-12"]) == 0
    before, after = load_checkpoint(best), load_checkpoint(tmp_path / "new" / "best")
    for path in after.tokenizer.sentencepiece_models():
        assert Vocabulary(path).pieces()[-9:] == list(STAND_INS)
    for name, tensor in before.state_dict.items():
        assert torch.allclose(after.state_dict[name][: len(tensor)], tensor, atol=1e-9), name
    size = before.config.target_vocab_size + 9
    assert after.config.target_vocab_size == len(after.state_dict["output_projection.weight"]) == size
