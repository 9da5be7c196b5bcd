"""The sentences that the serving benchmark sends."""

from benchmarks.models.benchmarked import RANDOM
from benchmarks.models.workload import read_pairs
from benchmarks.places import DEMO
from benchmarks.runs.serving import write_sentences
from translane_server.bundle import load_bundle

PAIRS = "你好。\tHello.\n我是学生。\tI am a student.\n"


def test_real_texts_are_sent_to_the_demo_and_letters_to_the_random_models(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(PAIRS, encoding="utf-8")
    texts = write_sentences(tmp_path / "out" / "demo.txt", "demo", file).read_text(encoding="utf-8")
    assert texts == "你好。\n我是学生。\n"
    base, tiny = (
        write_sentences(tmp_path / "out" / f"{name}.txt", name, file).read_text(encoding="utf-8") for name in RANDOM
    )
    assert base == tiny
    lengths = [(len(text), int(length)) for text, length in (line.split("\t") for line in base.splitlines())]
    pairs = read_pairs(file, load_bundle(DEMO))
    assert lengths == [(max(1, len(pair.source) - 2), pair.reference_length) for pair in pairs]
