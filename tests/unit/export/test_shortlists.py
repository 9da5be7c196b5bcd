"""Shortlists: what is built, IBM model 1 compared with a plain implementation, and tables of Marian's."""

import random
from collections import defaultdict

import pytest

from helpers.bundles import SOURCES, TARGETS, random_checkpoint
from helpers.commands import shortlist
from translane_export import shortlists
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import load_sentencepiece
from translane_export.shortlists import TokenPair, align, coverage, read_vmap
from translane_server.bundle.shortlist import Shortlist


@pytest.fixture
def checkpoint(tmp_path):
    text = "".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True))
    (tmp_path / "text.tsv").write_text(text, encoding="utf-8")
    return random_checkpoint(tmp_path / "checkpoint")


def build(checkpoint, *flags):
    folder = checkpoint.parent
    return shortlist([str(checkpoint), "--text", str(folder / "text.tsv"), "-o", str(folder / "rules"), *flags], {})


def test_rules_of_a_text(checkpoint, capsys):
    assert build(checkpoint, "--always", "5") == 0
    assert "5 pieces always" in capsys.readouterr().out
    source, target = (load_sentencepiece(checkpoint / f"{side}.spm") for side in ("source", "target"))
    of_source, of_target = ({model.id_to_piece(id_): id_ for id_ in range(len(model))} for model in (source, target))
    shortlist, left_out = read_vmap(checkpoint.parent / "rules", of_source, of_target, len(source))
    assert left_out == 0
    assert len(shortlist.always) == 5
    for text, translation in zip(SOURCES, TARGETS, strict=True):
        found = set(shortlist.tokens(source.encode(text)).tolist())
        assert found.issuperset(target.encode(translation)), "every piece of the text is in its own list"


def test_a_file_is_not_replaced(checkpoint, capsys):
    (checkpoint.parent / "rules").write_text("kept")
    assert build(checkpoint) == 1
    assert "--force replaces it" in capsys.readouterr().err
    assert (checkpoint.parent / "rules").read_text() == "kept"
    assert build(checkpoint, "--force") == 0


def test_no_line_after_the_pairs_to_read_matters(checkpoint, capsys):
    with (checkpoint.parent / "text.tsv").open("a") as file:
        file.write("no tab\n")
    assert build(checkpoint, "--max-pairs", str(len(SOURCES))) == 0
    assert build(checkpoint, "--force") == 1
    assert f"text.tsv:{len(SOURCES) + 1}: 1 column" in capsys.readouterr().err


def test_coverage():
    shortlist = Shortlist.of({(1,): [5], (2,): [6, 7]}, [0], 10)
    found = coverage(shortlist, [TokenPair([1], [5, 6, 0]), TokenPair([1, 2], [7])])
    assert found == (0.75, 3.0)


def plain_model_1(pairs, empty, rounds):
    probability: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in pairs:
            for other in target:
                total = sum(probability[one, other] for one in (*source, empty))
                for one in (*source, empty):
                    share = probability[one, other] / total
                    counts[one, other] += share
                    totals[one] += share
        probability = defaultdict(float, {(one, other): counts[one, other] / totals[one] for one, other in counts})
    return probability


@pytest.mark.parametrize("cells", [1, 50, 1 << 22])
def test_probabilities(monkeypatch, cells):
    monkeypatch.setattr(shortlists, "_CELLS_OF_A_CHUNK", cells)
    draw = random.Random(0)
    pairs = [
        TokenPair(draw.choices(range(12), k=draw.randint(1, 8)), draw.choices(range(9), k=draw.randint(1, 8)))
        for _ in range(60)
    ]
    found = align(pairs, 12, 9, 4)
    expected = plain_model_1(pairs, 12, 4)
    assert len(found.probability) == len(expected)
    for one, other, probability in zip(found.source, found.target, found.probability, strict=True):
        assert probability == pytest.approx(expected[one, other], rel=1e-9)


def test_best_are_the_most_probable():
    found = align([TokenPair([0], [1, 1, 1, 2, 2, 3])], 2, 4, 3)
    assert found.best(2, 0.0) == {0: [1, 2]}
    assert found.best(9, 0.3) == {0: [1, 2]}
    assert found.best(9, 0.0) == {0: [1, 2, 3]}


# Rules are read as CTranslate2 reads its vmap.


SOURCE = {"a": 0, "b": 1, "▁c": 2}
TARGET = {"x": 0, "y": 1, "z": 2, "▁w": 3}


def read(tmp_path, text):
    path = tmp_path / "rules.vmap"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_vmap(path, SOURCE, TARGET, len(SOURCE))


def test_ngrams_and_what_is_always_allowed(tmp_path):
    shortlist, left_out = read(tmp_path, "\tx\na\ty z\na b\t▁w\nb ▁c\tz\r\n")
    assert left_out == 0
    assert shortlist.tokens([0]).tolist() == [0, 1, 2]
    assert shortlist.tokens([0, 1]).tolist() == [0, 1, 2, 3]
    assert shortlist.tokens([1, 0]).tolist() == [0, 1, 2]
    assert shortlist.tokens([1, 2]).tolist() == [0, 2]


def test_unknown_tokens_are_left_out(tmp_path):
    shortlist, left_out = read(tmp_path, "\tx\na\ty strange\nstrange\tz\na\tz\n")
    assert left_out == 2
    assert shortlist.tokens([0]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\tx\na y\n", ":2: the line has no tab"),
        ("a\tx\n", "no line has tokens that are always allowed"),
        ("\tx\nstrange\ty\n", "no rule has a source token of this model"),
        ("\tx\n" + " ".join("a" * 9) + "\ty\n", ":2: the n-gram has 9 tokens, and at most 8 are possible"),
        (b"\tx\na\t\xff\n", "not UTF-8"),
        ("\tx\na\t" + "y " * 600_000 + "\n", ":2: the line has more than 1,048,576 bytes"),
    ],
)
def test_wrong_files_are_refused(tmp_path, text, message):
    with pytest.raises(ExportError, match=message):
        read(tmp_path, text)
