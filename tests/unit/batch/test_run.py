"""Runs from a corpus to its outputs, against an oracle that holds everything in memory."""

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from unit.batch.fake_workers import translation_of

from helpers.commands import batch
from translane_batch import records, run, store
from translane_batch.run import Summary
from translane_batch.settings import BatchError
from translane_batch.store import Sources, locked


def corpus_of(folder: Path, files: Sequence[Sequence[str]]) -> Path:
    corpus = folder / "in"
    for number, lines in enumerate(files):
        path = corpus / f"part{number % 2}" / f"{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return corpus


def outputs_of(folder: Path) -> dict[str, bytes]:
    """All files of an output folder, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".translane-batch" not in path.parts
    }


def expected_of(corpus: Path) -> dict[str, bytes]:
    """What the outputs should be."""
    found = {}
    for path in corpus.rglob("*.txt"):
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        answers = [translation_of(line) if line.strip() else None for line in lines]
        name = path.relative_to(corpus).as_posix()
        found[name] = "".join(f"{answer.text if answer else ''}\n" for answer in answers).encode()
        if wrong := [n for n, answer in enumerate(answers, 1) if answer and answer.reason]:
            found[f"{name}.left-out.jsonl"] = "".join(
                json.dumps({"record": n, "reason": "refused", "detail": "it is bad"}) + "\n" for n in wrong
            ).encode()
    return found


LINES = st.sampled_from(["a", "b", "bad", "", " ", "长 长", "é", "x" * 40]) | st.integers(0, 30).map(str)


@hypothesis_settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(st.lists(LINES, max_size=40), min_size=1, max_size=4))
def test_outputs_are_those_of_the_oracle(tmp_path_factory, monkeypatch, go, workers, files):
    monkeypatch.setattr(records, "MOST_RECORDS", 3)
    folder = tmp_path_factory.mktemp("run")
    corpus, output = corpus_of(folder, files), folder / "out"
    workers.translated.clear()
    summary = go(corpus=corpus, output=output)
    assert outputs_of(output) == expected_of(corpus)
    texts = [line for lines in files for line in lines if line.strip()]
    assert workers.translated == Counter(set(texts))  # each different source once
    bad = texts.count("bad")
    assert summary == Summary(
        files=len(files),
        records=sum(map(len, files)),
        blank=sum(map(len, files)) - len(texts),
        sources=len(set(texts)),
        duplicates=len(texts) - len(set(texts)),
        translated=len(texts) - bad,
        left_out={"refused": bad} if bad else {},
        sources_translated=len(set(texts)),
        reading_seconds=summary.reading_seconds,
        translating_seconds=summary.translating_seconds,
        writing_seconds=summary.writing_seconds,
    )


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_outputs(tmp_path, monkeypatch, go, workers):
    draw = random.Random(1)
    corpus = corpus_of(tmp_path, [[str(draw.randrange(60)) for _ in range(100)] for _ in range(3)])
    real = Sources.answers
    for phase in ("translate", "write"):
        for _ in range(3):
            workers.most = 15 if phase == "translate" else 1 << 30
            calls = iter(range(2))

            def answers(sources: Sources, texts: Sequence[str], calls: Any = calls) -> Any:
                if next(calls, None) is None:
                    raise InterruptedError("killed")
                return real(sources, texts)

            monkeypatch.setattr(Sources, "answers", answers)
            monkeypatch.setattr(records, "MOST_RECORDS", 40)
            with pytest.raises(InterruptedError):
                go()
    monkeypatch.setattr(Sources, "answers", real)
    summary = go()
    assert outputs_of(tmp_path / "out") == expected_of(corpus)
    assert set(workers.translated.values()) == {1}
    assert workers.opened == workers.closed == 4  # none where nothing is left to translate
    assert (summary.records, summary.translated) == (300, 300)
    assert not list((tmp_path / "out").rglob("*.new"))


def test_a_run_that_is_killed_while_it_reads_begins_anew(tmp_path, monkeypatch, go, workers):
    corpus = corpus_of(tmp_path, [["a", "b", "a"], ["c"]])
    real = Sources.add

    def killed(sources: Sources, texts: Sequence[str]) -> None:
        real(sources, texts)
        if "c" in texts:
            raise InterruptedError("killed")

    monkeypatch.setattr(Sources, "add", killed)
    with pytest.raises(InterruptedError):
        go()
    assert workers.closed == 1
    monkeypatch.setattr(Sources, "add", real)
    corpus_of(tmp_path, [["a", "d"], ["c"]])
    # Nothing is settled yet, so another corpus and other settings are welcome, and no text of the first one is left.
    assert go(beam_size=3).sources == 3
    assert outputs_of(tmp_path / "out") == expected_of(corpus)


def test_a_finished_run_is_told_again(tmp_path, go, workers):
    corpus_of(tmp_path, [["a"]])
    first = go()
    assert go() == first
    assert workers.translated == {"a": 1}
    work = tmp_path / "out" / ".translane-batch"
    assert {path.name for path in work.iterdir()} == {"translane-batch.lock", "owner", "run.sqlite"}
    (tmp_path / "out" / "part0" / "000.txt").unlink()
    with pytest.raises(BatchError, match="it was written, and is gone"):
        go()


def test_a_run_is_not_resumed_with_anything_else(tmp_path, go, workers):
    corpus = corpus_of(tmp_path, [["a"], ["b"], ["c"]])
    workers.most = 0
    with pytest.raises(InterruptedError):
        go(beam_size=2)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"beam_size": 3}, r"other settings \(beam_size was 2, is 3\)"),
        ({"beam_size": 2, "leave_out": ("copy",)}, r"leave_out was \[\], is \['copy'\]"),
        ({"beam_size": 2, "model": "other"}, "model was 'model of .*zh-en'"),
        ({"beam_size": 2, "output": tmp_path / "other", "work": tmp_path / "out"}, "output was"),
    ]
    for changes, sentence in cases:
        with pytest.raises(BatchError, match=sentence):
            go(**changes)
    (corpus / "part0" / "000.txt").write_text("another\n", encoding="utf-8")
    (corpus / "part1" / "001.txt").unlink()
    with pytest.raises(BatchError, match=r"the corpus has changed since: part0/000.txt and 1 more"):
        go(beam_size=2)
    # What decides nothing may change.
    corpus_of(tmp_path, [["a"], ["b"], ["c"]])
    (tmp_path / "out" / ".translane-batch" / "run.sqlite").unlink()
    workers.most = 1
    with pytest.raises(InterruptedError):
        go(beam_size=2)
    workers.most = 1 << 30
    go(beam_size=2, threads=1, requests=3, max_batch_size=8, task_size=1)


def test_two_runs_do_not_share_a_folder(tmp_path, go):
    corpus_of(tmp_path, [["a"]])
    go()
    with locked(tmp_path / "out" / ".translane-batch"):
        for changes in ({}, {"work": tmp_path / "work"}):
            with pytest.raises(BatchError, match=r"out/\.translane-batch: another run works in this folder"):
                go(**changes)


def test_outputs_are_those_of_the_run_that_began_last(tmp_path, go, workers):
    """Two runs with states of their own never both say that they have written the same folder."""
    corpus = corpus_of(tmp_path, [["a", "b"]])
    workers.most = 0
    for work in ("first", "second"):
        with pytest.raises(InterruptedError):
            go(work=tmp_path / work)
    workers.most = 1 << 30
    with pytest.raises(BatchError, match="another run has begun since"):
        go(work=tmp_path / "first")
    go(work=tmp_path / "second")
    assert outputs_of(tmp_path / "out") == expected_of(corpus)
    go(work=tmp_path / "second")
    with pytest.raises(BatchError, match="another run has begun since"):
        go(work=tmp_path / "first")
    with pytest.raises(BatchError, match="it is there already"):
        go()


@pytest.mark.parametrize("place", [".", "out", "in/..", "mine"])
def test_nothing_but_the_state_of_the_run_is_removed(tmp_path, go, place):
    """A folder may be named for the state, whatever else is there."""
    corpus = corpus_of(tmp_path, [["a", "b"]])
    names = ["run.sqlite", "sources", ".mine.new", "lock", "summary.json"]
    mine = [tmp_path / folder / name for folder in (".", "mine", "out", "out/part0") for name in names]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine", encoding="utf-8") if "." in path.name else (path / "deep").mkdir(parents=True)
    unfinished = tmp_path / "out" / "part0" / ".translane-batch-0123456789abcdef.new"
    unfinished.touch()
    go(work=tmp_path / place)
    assert [path for path in mine if not path.exists()] == []
    assert set((tmp_path / "out" / "part0").iterdir()) - set(mine) == {tmp_path / "out" / "part0" / "000.txt"}
    assert not unfinished.exists()
    assert (corpus / "part0" / "000.txt").exists()


def test_a_folder_of_somebody_else_is_no_state(tmp_path, go):
    corpus_of(tmp_path, [["a"]])
    mine = tmp_path / "mine" / ".translane-batch" / "sources" / "a.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine", encoding="utf-8")
    with pytest.raises(BatchError, match="the folder holds something else than a run"):
        go(work=tmp_path / "mine")
    assert mine.read_text(encoding="utf-8") == "mine"
    for changes in ({"corpus": mine.parent}, {"corpus": mine}, {"output": mine.parent / "out"}):
        with pytest.raises(BatchError, match="must not be within the state of the run"):
            go(**{"work": tmp_path / "mine", **changes})


@pytest.mark.parametrize("lines", [["c", "b"], ["a"], ["b", "a"], ["a", "b", "b"], ["a", "b", "c"]])
def test_a_corpus_that_changes_meanwhile_is_found_out(tmp_path, monkeypatch, go, lines):
    corpus_of(tmp_path, [["a", "b"]])
    real = run._write

    def changed(*arguments: Any) -> None:
        corpus_of(tmp_path, [lines])
        real(*arguments)

    monkeypatch.setattr(run, "_write", changed)
    with pytest.raises(BatchError, match="it has changed while the corpus was translated"):
        go()
    assert outputs_of(tmp_path / "out") == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:4096] + b"\xff" * 1000 + content[5096:],
        lambda content: content[:12288] + b"\xff" * 1000 + content[13288:],
        lambda _: b"garbage" * 200,
        lambda content: content[:60] + bytes(4) + content[64:],  # of another version
    ],
)
def test_a_damaged_state_is_told_in_a_sentence(tmp_path, workers, capsys, change):
    corpus_of(tmp_path, [[f"text {number}" for number in range(500)]])
    argv = [str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--model=m"]
    workers.most = 3
    assert batch(argv, {}) == 1
    path = tmp_path / "out" / ".translane-batch" / "run.sqlite"
    before = path.read_bytes()
    after = change(before)
    assert after != before
    path.write_bytes(after)
    capsys.readouterr()
    workers.most = 1 << 30
    assert batch(argv, {}) == 1
    err = capsys.readouterr().err.splitlines()[-1]
    assert "damaged" in err or "of this version" in err
    assert ".translane-batch" in err
    assert outputs_of(tmp_path / "out") == {}


def test_answers_are_kept_a_second_after_they_were_given(tmp_path, monkeypatch):
    """What another process sees is what is there after a kill."""
    texts = [f"text {number}" for number in range(10)]
    with Sources(tmp_path / "s", new=True) as sources:
        sources.add(texts * 2)
        assert sources.counts() == (10, 0)
    now = 0.0
    monkeypatch.setattr("translane_batch.store.time.monotonic", lambda: now)
    sources = Sources(tmp_path / "s")
    for chunk in sources.left(2):
        now += 0.4
        sources.save([(number, translation_of(text)) for number, text in chunk])
    with sqlite3.connect(tmp_path / "s") as seen:
        assert seen.execute("select count(answer) from source").fetchone() == (6,)
    seen.close()
    sources.close()
    with Sources(tmp_path / "s") as sources:
        assert list(sources.left(3)) == []
        assert sources.answers(["text 3", "other"]) == [translation_of("text 3"), None]


def test_chunks_are_bounded_by_number_and_by_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_CHUNK_BYTES", 20)
    texts = ["a", "b", "c", "long" * 6, "d", "e\0f"]
    with Sources(tmp_path / "s", new=True) as sources:
        sources.add(texts)
        assert [[text for _, text in chunk] for chunk in sources.left(3)] == [texts[:3], texts[3:4], texts[4:]]


def test_a_full_disk_is_told_and_leaves_no_half_output(tmp_path, monkeypatch, go, settings):
    corpus = corpus_of(tmp_path, [["a", "b"]])
    monkeypatch.setattr(run, "_listed", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left") as caught:
        go()
    assert "part0/000.txt" in str(caught.value.filename)
    assert outputs_of(tmp_path / "out") == {}
    monkeypatch.undo()
    monkeypatch.setattr("translane_batch.local_model.identity_of_folder", lambda folder: f"model of {folder}")
    run.run(settings(), lambda _line: None)  # nothing is left to translate, so no worker is needed
    assert outputs_of(tmp_path / "out") == expected_of(corpus)
