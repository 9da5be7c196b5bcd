"""Translane's part of the benchmarks: replicas in processes, which count as the decoder's own."""

from typing import Any

import psutil
import pytest

from benchmarks.engines.decoder_process import DecoderProcess
from benchmarks.engines.settings import TRANSLANE
from benchmarks.engines.translane_decoder import TranslaneDecoder
from benchmarks.models.workload import Load
from benchmarks.places import DEMO

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
