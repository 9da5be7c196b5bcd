import gzip
from pathlib import Path

import pytest

from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.errors import DataError

BAD = "你好\tHello\tx\n只有一列\n \tempty source\tx\n空的\t\tx\n再见\tBye\n".encode() + b"\xff\xfe\tbroken\n"


def test_plain_and_gzipped_files_read_the_same(tmp_path: Path) -> None:
    text = " 你好 \tHello\u2028there\r\n"
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8", newline="")
    with gzip.open(tmp_path / "a.tsv.gz", "wt", encoding="utf-8", newline="") as file:
        file.write(text)
    plain = read_parallel_text(tmp_path / "a.tsv", Columns(), "refuse")
    zipped = read_parallel_text(tmp_path / "a.tsv.gz", Columns(), "refuse")
    assert [(pair.source, pair.target) for pair in plain.pairs] == [("你好", "Hello\u2028there")]
    assert plain.pairs == zipped.pairs
    assert plain.digest == zipped.digest


def test_columns_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tHello\t你好\n", encoding="utf-8")
    text = read_parallel_text(tmp_path / "a.tsv", Columns(source=2, target=1), "refuse")
    assert (text.pairs[0].source, text.pairs[0].target) == ("你好", "Hello")


def test_bad_lines_are_skipped_counted_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "bad.tsv"
    path.write_bytes(BAD)
    text = read_parallel_text(path, Columns(), "skip")
    assert [pair.target for pair in text.pairs] == ["Hello", "Bye"]
    assert text.skipped == 4
    assert text.problems == (
        f"{path}:2: 1 column, at least 2 needed",
        f"{path}:3: the source side (column 0) is empty",
        f"{path}:4: the target side (column 1) is empty",
        f"{path}:6: invalid UTF-8 at byte 1",
    )
    assert "2 pairs, 4 bad lines skipped" in text.summary()


def test_only_the_first_bad_lines_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "bad.tsv"
    path.write_text("a\tb\n" + "one column\n" * 9, encoding="utf-8")
    summary = read_parallel_text(path, Columns(), "skip").summary()
    assert "9 bad lines skipped" in summary
    assert summary.endswith("and 4 more")


def test_a_bad_line_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.tsv"
    path.write_bytes(BAD)
    with pytest.raises(DataError, match=r"bad\.tsv:2: 1 column, at least 2 needed$"):
        read_parallel_text(path, Columns(), "refuse")


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.tsv: the file is missing"):
        read_parallel_text(tmp_path / "none.tsv", Columns(), "skip")
    (tmp_path / "fake.gz").write_text("no gzip")
    with pytest.raises(DataError, match=r"fake\.gz: cannot be read"):
        read_parallel_text(tmp_path / "fake.gz", Columns(), "skip")
    whole = gzip.compress(b"a\tb\n" * 1000)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.gz: cannot be read"):
        read_parallel_text(tmp_path / "cut.gz", Columns(), "skip")
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(DataError, match=r"empty\.tsv: no usable sentence pair$"):
        read_parallel_text(tmp_path / "empty.tsv", Columns(), "skip")
