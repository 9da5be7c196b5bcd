"""`translane explain`: a folder and a report, or one sentence, an exit code and nothing left behind."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import explain as main
from translane_export.explain.settings import ExplainSettings
from translane_server.settings_loader import flag_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
DEMO = ROOT / "models" / "zh-en"
TEXT = "我有一只猫。"
FILES = {
    "index.html", "explain.json", "attention-cross.svg", "attention-encoder.svg", "attention-decoder.svg",
    "positions.svg", "operators.svg",
}  # fmt: skip


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
    assert re.search(r"^pieces +我 有 一 只 猫 。 </s>$", report, re.MULTILINE) or "我" in report
    assert "encoder layer 1: as encoder layer 0" in report
    assert "decoder layers 1 to 2: as decoder layer 0" in report
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


def test_half_precision(explain, tmp_path):
    folder = ROOT / "tests" / "data" / "bundles" / "v5-fp16"
    code, report, _ = explain(folder, TEXT, "-o", tmp_path / "seen", "--threads", 1)
    assert code == 0
    assert "reference 1, fp16; " in report


def test_only_its_own_output_is_replaced(explain, tiny, tmp_path):
    output = tmp_path / "seen"
    arguments = (tiny, TEXT, "-o", output, "--threads", 1)
    output.mkdir()
    (output / "operators.png").write_bytes(b"old")
    (output / "explain.json").write_text('{"schema_version": 1, "files": {"operators.png": {}}}')
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
        ((tiny, "好" * 30, *output), 2, "tokens, and the model takes 16; give one shorter sentence"),
        (
            (tiny, TEXT, *output, "--target-language", "tlh"),
            2,
            "--target-language: 'tlh' is not a language of the model",
        ),
        ((tiny, TEXT, *output, "--beam-size", "0"), 2, "--beam-size: "),
        ((tiny, TEXT, *output, "--max-length", "99"), 2, "--max-length: it is 99, and the model writes at most 16"),
        ((tiny, TEXT, *output, "--format", "gif"), 2, "--format"),
        ((tmp_path / "none", TEXT, *output), 1, "there is no such folder"),
        ((tmp_path, TEXT, *output), 1, "it has no manifest.json"),
    ):
        found = explain(*arguments)
        assert (found[0], found[1]) == (code, "")
        assert sentence in found[2]
        assert not (tmp_path / "seen").exists()


def test_torchscript_is_named(explain, tmp_path):
    folder = tmp_path / "torchscript"
    folder.mkdir()
    (folder / "torchscript.json").write_text("{}")
    assert explain(folder, TEXT, "-o", tmp_path / "seen")[::2] == (
        1,
        f"model bundle {folder}: it holds TorchScript files; export the checkpoint as ONNX graphs",
    )


def test_a_damaged_bundle_is_refused(explain, tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "damaged")
    (folder / "weights.bin").write_bytes(b"no")
    code, _, sentence = explain(folder, TEXT, "-o", tmp_path / "seen")
    assert code == 1
    assert "weights.bin is not the file that was exported" in sentence


def test_without_matplotlib_nothing_is_done(tiny, tmp_path):
    code = "import sys; sys.modules['matplotlib'] = None\nfrom translane.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "explain", str(tiny), "x", "-o", "seen"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("translane explain: matplotlib is not installed")
    assert not list(tmp_path.iterdir())


def test_the_page_of_the_documents_has_every_setting():
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    assert {flag_name(ExplainSettings, name) for name in ExplainSettings.model_fields} <= documented
