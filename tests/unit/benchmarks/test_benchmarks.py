"""What make bench runs, whose rounds count, and Translane and CTranslate2 as the benchmarks have them."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import places
from benchmarks.engines.ctranslate2_decoder import CTranslate2Decoder
from benchmarks.engines.decoder_process import Decoded, DecoderProcess
from benchmarks.engines.settings import TRANSLANE
from benchmarks.engines.translane_decoder import TranslaneDecoder
from benchmarks.measuring.turns import outcome
from benchmarks.models.benchmarked import converter_of_demo
from benchmarks.models.workload import Load, make_load, read_pairs
from benchmarks.places import DEMO
from benchmarks.runs import suite
from helpers.demo import demo_in_fp32
from translane_server.bundle.bundle import load_bundle


@pytest.mark.slow  # each program imports what it measures
def test_every_part_is_a_program_that_takes_its_arguments():
    sentences, bundles = Path("mine.tsv.gz"), {"demo-int8": places.DEMO}
    parts = [part for length in suite.PARTS for part in suite.parts(length, "cpu", sentences, bundles, vnni=True)]
    parts += suite.parts("full", "cuda", sentences, {})
    for words in {part.words[2 * (part.name == "without_vnni") :] for part in parts}:
        command = [sys.executable, *(() if words[0] == "-m" else ("-m",)), *words, "--help"]
        done = subprocess.run(command, cwd=places.ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_suite_ends_in_time(monkeypatch):
    given = []
    monkeypatch.setattr(suite, "run", lambda part, _environment: given.append(part.minutes) or 0)
    minutes = iter((0, 0, 30, 30, 58, 58, 60, 60))
    parts = [suite.Part(name, (name,), 40) for name in ("first", "second", "third", "fourth")]
    codes = suite.run_all(parts, {}, 60, clock=lambda: 60.0 * next(minutes))
    assert given == [40, 30, 2]
    assert list(codes.values()) == [0, 0, 0, suite.ENDED]


# What counts of an engine's rounds, which take turns.


def decoded(seconds, tokens=100):
    return Decoded(seconds=seconds, cpu_seconds=2 * seconds, tokens=tokens)


def test_the_best_median_counts_and_all_rounds_are_kept():
    steady, lucky = [decoded(2.0)] * 3, [decoded(1.0), decoded(4.0), decoded(5.0)]
    for runs in itertools.permutations({"steady": steady, "lucky": lucky}.items()):
        found = outcome(dict(runs), {"steady": 1.0}, 7)
        assert (found.setting, found.rate, found.cpu_rate) == ("steady", 50.0, 25.0)
        assert (found.tokens, found.sentences, found.trials) == (100, 7, {"steady": 1.0})
        assert [run["seconds"] for run in found.rounds["lucky"]] == [1.0, 4.0, 5.0]


# Translane's part of the benchmarks: replicas in processes, which count as the decoder's own.


SOURCES = tuple((*range(100 + number, 105 + number), 0) for number in range(6))
ROOM: dict[str, Any] = {"threads": 1, "rows": 2, "source_tokens": 16, "target_tokens": 20}


def test_two_replicas_translate_as_one_does(monkeypatch: pytest.MonkeyPatch):
    # The replicas' process must set this before ONNX Runtime is imported, or a thread that sends data starts.
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    load = Load(SOURCES, None, 20, 2, 1)
    found = []
    for replicas in (1, 2):
        decoder = TranslaneDecoder(DEMO, replicas=replicas, ends=True, **ROOM)
        found.append(decoder.token_ids(decoder.decode(decoder.prepare(load))))
        threads = [child.num_threads() for child in psutil.Process().children() if child.children()]
        assert threads == [1] * (replicas > 1), "what replicas fork from has one thread"
        decoder.close()
    assert found[0] == found[1]
    assert len(found[0]) == len(SOURCES)


def test_replicas_count_as_the_process_that_has_them():
    lengths = (20,) * len(SOURCES)
    with DecoderProcess(TRANSLANE) as process:
        process.open(DEMO, replicas=2, ends=False, **ROOM)
        process.load(Load(SOURCES, lengths, 20, 2, 1))
        decoded = process.decode(translations=True)
        assert decoded.translations is not None
        assert [len(ids) for ids in decoded.translations] == list(lengths)
        with_replicas = process.memory()
        process.close()
        assert process.memory() < with_replicas / 2


# The demo model as CTranslate2 has it: the same tokens as ours.


SENTENCES = [("今天天气很好。", "It is a fine day."), ("我是学生。", "I am a student."), ("他在哪里？", "Where is he?")]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed (pip install --group bench)")
    output = tmp_path_factory.mktemp("ctranslate2") / "demo"
    converter_of_demo().convert(str(output), quantization="float32")
    return output


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    file = Path(tmp_path_factory.mktemp("sentences")) / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in SENTENCES), encoding="utf-8")
    return read_pairs(file, load_bundle(DEMO))


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_converted_demo_translates_as_ours_does(converted, pairs, beam_size):
    load = make_load(pairs, len(pairs), 2, beam_size, fixed=False)
    theirs = CTranslate2Decoder(converted, workers=1, threads=1, compute_type="float32")
    ours = TranslaneDecoder(
        demo_in_fp32(),
        replicas=2,
        threads=1,
        rows=2 * beam_size,
        source_tokens=64,
        target_tokens=load.max_length,
        ends=True,
    )
    decoders: list[Any] = [ours, theirs]
    found = [decoder.token_ids(decoder.decode(decoder.prepare(load))) for decoder in decoders]
    ours.close()
    theirs.close()
    assert found[0] == found[1]
    assert all(found[0])
