"""`translane explain`: a folder and a report, or one sentence, an exit code and nothing left behind."""

import json
import re
from pathlib import Path

import pytest

from helpers.commands import explain as main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
DEMO = ROOT / "models" / "zh-en"
TEXT = "我有一只猫。"
FILES = {"index.html", "explain.json"}


@pytest.fixture
def explain(tmp_path, capsys):
    """Run the command; return its exit code, what it prints, and its last line on standard error."""

    def run(*arguments):
        code = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, (captured.err.splitlines() or [""])[-1].removeprefix("translane explain: ")

    return run


def test_it_writes_a_folder_and_prints_a_report(explain, tiny, tmp_path):
    output = tmp_path / "seen"
    code, report, _ = explain(tiny, TEXT, "-o", output, "--threads", 1)
    assert code == 0
    assert {path.name for path in output.iterdir()} == FILES
    assert re.search(rf"^text +{TEXT}$", report, re.MULTILINE)
    assert [line for line in report.splitlines() if re.match("(en|de)coder layer", line)] == [
        "encoder layer 0",
        "decoder layer 0",
    ]
    assert re.search(r"^decoder step: a run takes [\d,]+ µs", report, re.MULTILINE)
    assert re.search(
        r"^The step chooses “.+”. Its probability is (\S+); the graphs give it \1\.$", report, re.MULTILINE
    )
    content = json.loads((output / "explain.json").read_text(encoding="utf-8"))
    assert content["text"] == TEXT
    assert set(content["files"]) == FILES - {"explain.json"}
    assert content["largest_difference"] < 1e-4


@pytest.mark.skipif(not DEMO.exists(), reason="the bundled model is not in this tree")
def test_the_bundled_model(explain, tmp_path):
    code, report, _ = explain(DEMO, TEXT, "-o", tmp_path / "seen", "--threads", 1, "--beam-size", 4)
    assert code == 0
    assert re.search("^translation +I have a cat.$", report, re.MULTILINE)
    assert "zh-en 1, int8; 3 encoder and 3 decoder layers, 4 heads of 64" in report
    difference = json.loads((tmp_path / "seen" / "explain.json").read_text(encoding="utf-8"))["largest_difference"]
    assert difference < 0.05  # int8 rounds what PyTorch does not


def test_only_its_own_output_is_replaced(explain, tiny, tmp_path):
    output = tmp_path / "seen"
    arguments = (tiny, TEXT, "-o", output, "--threads", 1)
    output.mkdir()
    (output / "index.html").write_bytes(b"old")
    (output / "explain.json").write_text('{"schema_version": 1, "files": {"index.html": {}}}')
    assert explain(*arguments)[::2] == (
        1,
        f"output {output}: there is an output of explain already; --force replaces it",
    )
    assert explain(*arguments, "--force")[0] == 0
    assert {path.name for path in output.iterdir()} == FILES
    (output / "mine.txt").write_text("")
    assert explain(*arguments, "--force")[2] == f"output {output}: it holds other files: mine.txt; they are left alone"
    assert explain(tiny, TEXT, "-o", tiny, "--force")[2] == (
        f"output {tiny}: it holds other files than an output of explain, which are left alone"
    )
    (tmp_path / "file").write_text("")
    assert explain(tiny, TEXT, "-o", tmp_path / "file")[::2] == (1, f"output {tmp_path / 'file'}: it is not a folder")


def test_bad_input_is_one_sentence(explain, tiny, tmp_path):
    output = ("-o", tmp_path / "seen")
    for arguments, code, sentence in (
        ((), 2, "BUNDLE is required"),
        ((tiny, *output), 2, "TEXT is required"),
        ((tiny, TEXT), 2, "--output is required"),
        ((tiny, "", *output), 2, "TEXT: string should have at least 1 character, not ''"),
        ((tiny, "\udcff", *output), 2, "TEXT: "),
        ((tiny, " ", *output), 2, "TEXT: it has no tokens, so there is nothing to translate"),
        ((tiny, "好" * 40, *output), 2, "TEXT: it has 42 tokens, and the model takes 16; give one shorter sentence"),
        ((tiny, "好" * 2000, *output), 2, "TEXT: it has 2,000 characters, at most 1,024 are read"),
        (
            (tiny, TEXT, *output, "--target-language", "tlh"),
            2,
            "--target-language: 'tlh' is not a language of the model",
        ),
        ((tiny, TEXT, *output, "--beam-size", "0"), 2, "--beam-size: "),
        ((tiny, TEXT, *output, "--max-length", "99"), 2, "--max-length: it is 99, and the model writes at most 16"),
        ((tmp_path / "none", TEXT, *output), 1, "there is no such folder"),
        ((tmp_path, TEXT, *output), 1, "it has no manifest.json"),
    ):
        found = explain(*arguments)
        assert (found[0], found[1]) == (code, "")
        assert sentence in found[2]
        assert not (tmp_path / "seen").exists()
