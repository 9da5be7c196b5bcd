"""Files of Parquet: texts of a column, and the same table with a column more."""

import io
from pathlib import Path

import pytest

from helpers.refusals import refusal
from translane_batch.records import Answer
from translane_batch.settings import BatchError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def files(lists=False):
    from translane_batch.parquet_files import ParquetFiles

    return ParquetFiles("text", "translation", lists)


def table_of(path: Path, **columns):
    parquet.write_table(pyarrow.table(columns), path, row_group_size=3, compression="ZSTD")
    return path


def written(path: Path, answer_of, lists=False) -> io.BytesIO:
    file = io.BytesIO()
    with files(lists).output(path, file) as write:
        for block in files().blocks(path, whole=True):
            write(block, [answer_of(record) for record in block.records])
    file.seek(0)
    return file


def test_texts_are_read_and_a_column_is_added(tmp_path):
    texts = ["一", None, "", "  ", "bad", "二\n三", *(f"text {n}" for n in range(3000))]
    path = table_of(tmp_path / "a.parquet", text=texts, number=list(range(len(texts))))
    records = [record for block in files().blocks(path, whole=False) for record in block.records]
    assert [record.source for record in records] == [text if text and text.strip() else "" for text in texts]

    def answer_of(record):
        return Answer("", "refused") if record.source == "bad" else Answer(record.source and f"[{record.source}]")

    table = parquet.read_table(written(path, answer_of))
    assert table.column_names == ["text", "number", "translation"]
    assert table.drop(["translation"]).equals(parquet.read_table(path))
    assert table["translation"].to_pylist() == [
        None if text in (None, "bad") else f"[{text}]" if text.strip() else "" for text in texts
    ]


def test_several_translations_are_a_list(tmp_path):
    path = table_of(tmp_path / "a.parquet", text=["a", None, "b"])
    table = parquet.read_table(written(path, lambda record: Answer(f"{record.source}1", others=["2"]), lists=True))
    assert table["translation"].to_pylist() == [["a1", "2"], None, ["b1", "2"]]


def test_texts_as_views_are_texts(tmp_path):
    try:
        parquet.write_table(pyarrow.table({"text": pyarrow.array(["a"], pyarrow.string_view())}), tmp_path / "a")
    except pyarrow.ArrowNotImplementedError:
        pytest.skip("this pyarrow writes no views")
    table = parquet.read_table(written(tmp_path / "a", lambda record: Answer(record.source * 2)))
    assert table["translation"].to_pylist() == ["aa"]


def test_rows_are_gathered_to_groups_and_compressed_as_before(tmp_path):
    path = table_of(tmp_path / "a.parquet", text=["a"] * 100)
    metadata = parquet.ParquetFile(written(path, lambda _: Answer("b"))).metadata
    assert metadata.num_row_groups == 1
    assert metadata.row_group(0).column(1).compression == "ZSTD"


def test_a_file_without_rows(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), path)
    table = parquet.read_table(written(path, lambda _: Answer("b")))
    assert (table.num_rows, table.column_names) == (0, ["text", "translation"])


@pytest.mark.parametrize(
    ("names", "columns", "sentence"),
    [
        (["src", "x"], [["a"], [1]], "it has no column 'text', but src, x; --field names one"),
        (["text"], [[1]], "its column 'text' has int64, not texts"),
        (["text", "translation"], [["a"], ["b"]], "it has a column 'translation' already; --output-field"),
        (["text", "text"], [["a"], ["b"]], "it has several columns 'text'; --field names another"),
    ],
)
def test_a_wrong_column_is_refused(tmp_path, names, columns, sentence):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table(columns, names), path)
    with pytest.raises(BatchError, match=sentence):
        list(files().blocks(path, whole=False))


def test_a_broken_file_is_told_in_a_sentence(tmp_path):
    path = table_of(tmp_path / "a.parquet", text=["a"])
    path.write_bytes(path.read_bytes()[:-9])
    for each, problem in ((path, "cannot be read as Parquet"), (tmp_path / "no.parquet", "No such file")):
        assert problem in refusal(BatchError, list, files().blocks(each, whole=False))


def test_bytes_that_are_not_utf8_are_noted(tmp_path):
    array = pyarrow.array([b"good", b"\xff"]).cast(pyarrow.string(), safe=False)
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": array}), path)
    (block,) = files().blocks(path, whole=True)
    assert [record.source for record in block.records] == ["good", ""]
    assert block.records[1].problem == "it is not UTF-8, from its byte 1 on"
