"""Which files are the corpus, of which kinds, which are refused; and which translations are left out."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.batch.fake_workers import settings_of

from translane.results import FinishReason, Hypothesis, ModelInfo, Translation, Treatment
from translane_batch.corpus import find_corpus
from translane_batch.filters import LANGUAGE, LOW_QUALITY, UNENDED, Filters, languages_of
from translane_batch.records import Answer, kind_of
from translane_batch.settings import BatchError
from translane_batch.translator import named_models
from translane_server.core.quality import COPY, EMPTY, RATIO


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("text", "a.txt a.b.TXT.GZ"),
        ("tsv", "a.tsv.gz a.tab"),
        ("jsonl", "a.jsonl a.ndjson.gz"),
        ("parquet", "a.parquet"),
        ("", "a.parquet.gz a.gz a a.csv"),
    ],
)
def test_the_end_of_a_name_says_the_kind(kind, names):
    assert {kind_of(Path(name), "auto") for name in names.split()} == {kind}
    assert {kind_of(Path(name), "text") for name in names.split()} == {"text"}


def test_files_come_by_name_and_hidden_ones_do_not(tmp_path, settings):
    names = ["b.txt", "a/z.tsv", "a/b/c.jsonl.gz", "a.txt", ".hidden.txt", "_SUCCESS", "a/.crc/x.txt", "_tmp/y.txt"]
    for name in names:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    corpus = find_corpus(settings())
    assert [file.name for file in corpus] == ["a.txt", "a/b/c.jsonl.gz", "a/z.tsv", "b.txt"]
    assert corpus[1].output == tmp_path / "out/a/b/c.jsonl.gz"
    assert corpus[1].left_out == tmp_path / "out/a/b/c.jsonl.gz.left-out.jsonl"


def test_a_file_is_a_corpus(tmp_path, settings):
    (tmp_path / "words.zh").write_text("一\n", encoding="utf-8")
    with pytest.raises(BatchError, match=r"words.zh: its name ends in none of .txt, .*--kind names its kind"):
        find_corpus(settings(corpus=tmp_path / "words.zh"))
    (file,) = find_corpus(settings(corpus=tmp_path / "words.zh", kind="text"))
    assert file.fingerprint[:2] == ["words.zh", 4]


def test_what_cannot_be_a_corpus_is_refused(tmp_path, settings):
    corpus = tmp_path / "in"
    with pytest.raises(BatchError, match="in: No such file or directory"):
        find_corpus(settings())
    corpus.mkdir()
    with pytest.raises(BatchError, match="the folder holds no files"):
        find_corpus(settings())
    (corpus / "a.csv").touch()
    with pytest.raises(BatchError, match=r"a\.csv: its name ends in none of"):
        find_corpus(settings())
    (corpus / "a.csv").rename(corpus / "a.txt")
    for changes in ({"output": corpus}, {"output": corpus / "out"}, {"work": corpus / "work"}):
        with pytest.raises(BatchError, match="must not be within the corpus"):
            find_corpus(settings(**changes))
    with pytest.raises(BatchError, match="it would be replaced by its output"):
        find_corpus(settings(corpus=corpus / "a.txt", output=corpus))
    (corpus / "a.txt.left-out.jsonl").touch()
    with pytest.raises(BatchError, match="has the name of another file"):
        find_corpus(settings())
    (corpus / "a.txt.left-out.jsonl").unlink()
    os.mkfifo(corpus / "b.txt")
    with pytest.raises(BatchError, match="it is a named pipe"):
        find_corpus(settings())


def test_no_folder_is_left_out_silently(tmp_path, settings, monkeypatch):
    corpus, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    for folder in (corpus / "deep", elsewhere):
        folder.mkdir(parents=True)
        (folder / "a.txt").touch()
    (corpus / "_hidden").symlink_to(elsewhere)
    (corpus / "link.txt").symlink_to(elsewhere / "a.txt")
    assert [file.name for file in find_corpus(settings())] == ["deep/a.txt", "link.txt"]
    (corpus / "deep" / "more").symlink_to(elsewhere)
    with pytest.raises(BatchError, match="in/deep/more: it is a link to a folder"):
        find_corpus(settings())
    (corpus / "deep" / "more").unlink()
    real = os.scandir

    def refused(path: str) -> object:
        if Path(path).name == "deep":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(BatchError, match="in/deep: Permission denied"):
        find_corpus(settings())


def test_names_may_be_as_long_as_the_list_beside_them_allows(tmp_path, settings):
    (tmp_path / "in").mkdir()
    longest = "长" * 78 + "aa.txt"
    assert len(f"{longest}.left-out.jsonl".encode()) == 255
    (tmp_path / "in" / longest).touch()
    assert find_corpus(settings())[0].name == longest
    (tmp_path / "in" / f"a{longest}").touch()
    with pytest.raises(BatchError, match=r"its name is too long: NAME\.left-out.jsonl has more than 255 bytes"):
        find_corpus(settings())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("in/a.txt", "it would replace a file"),
        ("in/new.json", "it would replace a file"),
        ("link.txt", "it would replace a file"),
        ("out/a.txt", "it would replace a file"),
        ("out/a.txt.left-out.jsonl", "it would replace a file"),
        ("out/.translane-batch/run.sqlite", "it would replace a file"),
        ("in", "it would replace a file"),
        ("", "it is a folder"),
        ("missing/figures.json", "its folder does not exist"),
        ("out/figures.json", ""),
        ("new/figures.json", ""),
        ("figures.json", ""),
    ],
)
def test_the_figures_replace_nothing(tmp_path, settings, name, problem):
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in" / "a.txt").touch()
    (tmp_path / "link.txt").symlink_to(tmp_path / "in" / "a.txt")
    corpora = [tmp_path / "in", tmp_path / "in" / "a.txt"]
    for corpus in corpora[: 1 if name in ("in/new.json", "in") else 2]:
        if not problem:
            find_corpus(settings(corpus=corpus, output=tmp_path / Path(name).parent, summary=tmp_path / name))
            continue
        with pytest.raises(BatchError, match=f"--summary: .*{problem}") as caught:
            find_corpus(settings(corpus=corpus, summary=tmp_path / name))
        assert caught.value.exit_code == 2


# Which translations are left out.


def filters(**settings: Any) -> Filters:
    return Filters(settings_of(**settings), ("zh", "en"))


def translation(text: str, **changes: Any) -> Translation:
    return Translation((Hypothesis(text, None, **changes),), 4)


@pytest.mark.parametrize(
    ("settings", "source", "found", "expected"),
    [
        ({}, "好", translation("Good."), Answer("Good.")),
        ({}, "好", translation("好"), Answer("好")),
        ({}, "好", translation(""), Answer("", EMPTY)),
        ({"leave_out": ["copy"]}, "好", translation("好"), Answer("", COPY)),
        ({"leave_out": ["copy"], "keep_left_out": True}, "好", translation("好"), Answer("好", COPY)),
        ({}, "好", translation("a a", finish_reason=FinishReason.MAX_LENGTH), Answer("a a")),
        (
            {"leave_out": ["unended"]},
            "好",
            translation("a a", finish_reason=FinishReason.MAX_LENGTH),
            Answer("", UNENDED),
        ),
        ({"max_ratio": 2}, "好", translation("a", tokens=("a",) * 8), Answer("a")),
        ({"max_ratio": 2}, "好", translation("a", tokens=("a",) * 9), Answer("", RATIO)),
        ({"max_ratio": 2}, "好", translation("a", tokens=("a",)), Answer("", RATIO)),
        ({"min_quality": 0.5}, "好", translation("a", quality=0.5), Answer("a")),
        ({"min_quality": 0.5}, "好", translation("a", quality=0.4567), Answer("", LOW_QUALITY, "0.457")),
        ({"min_quality": 0.5}, "好", translation("a"), Answer("a")),
    ],
)
def test_rules(settings, source, found, expected):
    assert filters(**settings).answer(source, found) == expected


def test_all_translations_are_kept_with_the_best_one():
    found = Translation((Hypothesis("a", None), Hypothesis("好", None)), 4)
    assert filters(leave_out=["copy"], num_hypotheses=2).answer("好", found) == Answer("a", others=("好",))
    found = Translation((Hypothesis("好", None), Hypothesis("a", None)), 4)
    assert filters(leave_out=["copy"], num_hypotheses=2).answer("好", found) == Answer("", COPY)


def test_a_translation_in_the_source_language_is_left_out():
    pytest.importorskip("py3langid")
    chosen = filters(leave_out=["language"])
    assert chosen.answer("我有一只猫", translation("I have a cat.")) == Answer("I have a cat.")
    assert chosen.answer("我有一只猫", translation("我没有一只猫。")) == Answer("", LANGUAGE, "zh")
    detected = Translation(
        (Hypothesis("J'ai un petit chat noir.", None),), 4, treatment=Treatment(source_language="fr")
    )
    assert chosen.answer("Mon chat", detected) == Answer("", LANGUAGE, "fr")


def model(name: str, sources: tuple[str, ...], targets: tuple[str, ...]) -> ModelInfo:
    return ModelInfo(name, "1", sources, targets, "int8", "cpu", "", 1, 256, 256, 256)


def test_languages_and_models_are_those_of_the_servers():
    models = (model("a", ("zh",), ("en",)), model("b", ("de", "fr"), ("en",)))
    assert languages_of(settings_of(), models[:1]) == ("zh", "en")
    named = settings_of(model="b", server="x")
    assert languages_of(named, models) == ("", "en")
    assert named_models(named, models) == "b 1 int8"
    assert named_models(named, [replace(models[1], digest="d")]) == "b 1 int8 d"
    all_of_them = settings_of(model="", server="x", source_language="auto", target_language="en")
    assert languages_of(all_of_them, models) == ("", "en")
    assert named_models(all_of_them, models) == "a 1 int8, b 1 int8"
