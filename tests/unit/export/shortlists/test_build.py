"""`translane shortlist` makes a file that an export takes."""

import pytest

from helpers.bundles import SOURCES, TARGETS, random_checkpoint
from helpers.commands import shortlist
from translane_export.file_readers import load_sentencepiece
from translane_export.shortlists.build import TokenPair, coverage
from translane_export.shortlists.vmap import read_vmap
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


def test_a_text_that_is_missing(checkpoint, capsys):
    (checkpoint.parent / "text.tsv").unlink()
    assert build(checkpoint) == 1
    assert "text.tsv: the file is missing" in capsys.readouterr().err


def test_coverage():
    shortlist = Shortlist.of({(1,): [5], (2,): [6, 7]}, [0], 10)
    found = coverage(shortlist, [TokenPair([1], [5, 6, 0]), TokenPair([1, 2], [7])])
    assert found == (0.75, 3.0)
