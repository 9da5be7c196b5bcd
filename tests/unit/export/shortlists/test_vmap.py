"""Rules are read as CTranslate2 reads its vmap."""

import pytest

from translane_export.errors import ExportError
from translane_export.shortlists.vmap import read_vmap, vmap_lines

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


def test_written_rules_are_read(tmp_path):
    text = "".join(vmap_lines([((), ["x", "y"]), (("a",), ["z"]), (("a", "b"), ["▁w"])]))
    shortlist, _ = read(tmp_path, text)
    assert shortlist.tokens([0, 1]).tolist() == [0, 1, 2, 3]


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


def test_a_missing_file(tmp_path):
    with pytest.raises(ExportError, match="cannot be read: No such file"):
        read_vmap(tmp_path / "none", SOURCE, TARGET, 3)
