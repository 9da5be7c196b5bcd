"""The demo model as CTranslate2 has it: the same tokens as ours."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.engines.ctranslate2_decoder import CTranslate2Decoder
from benchmarks.models.ctranslate2_conversion import convert_bundle
from benchmarks.models.workload import make_load, read_pairs
from benchmarks.places import DEMO
from helpers.demo import demo_in_fp32
from translane_server.bundle.bundle import load_bundle

SENTENCES = [("今天天气很好。", "It is a fine day."), ("我是学生。", "I am a student."), ("他在哪里？", "Where is he?")]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed (pip install --group bench)")
    output = tmp_path_factory.mktemp("ctranslate2") / "demo"
    convert_bundle(DEMO, output, "float32")
    return output


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    file = Path(tmp_path_factory.mktemp("sentences")) / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in SENTENCES), encoding="utf-8")
    return read_pairs(file, load_bundle(DEMO))


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_converted_demo_translates_as_ours_does(converted, pairs, beam_size):
    from benchmarks.engines.translane_decoder import TranslaneDecoder

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
