"""`translane inspect`: what a bundle is, without PyTorch, and what a checkpoint is."""

import json
import subprocess
import sys

import pytest

from helpers.bundles import random_checkpoint
from helpers.commands import inspect
from helpers.demo import DEMO


def test_a_bundle_needs_no_pytorch():
    code = "import sys; sys.modules['torch'] = None\nfrom translane.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "inspect", str(DEMO), "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    manifest = json.loads((DEMO / "manifest.json").read_text(encoding="utf-8"))
    assert found["languages"] == {"source": ["zh"], "target": ["en"]}
    assert found["attention"] == ["4 heads of 64", "sinusoidal positions"]
    assert (found["precision"], found["parity"]["token_mismatches"]) == ("int8", 0)
    assert found["bytes_on_disk"] > sum(entry["size"] for entry in manifest["files"].values())


def test_the_quality_of_a_bundle(tmp_path, capsys):
    text = tmp_path / "text.tsv"
    text.write_text("我有一只猫。\tI have a cat.\nTom喜欢喝茶。\tTom likes tea.\n", encoding="utf-8")
    assert inspect([str(DEMO), "--quality", str(text), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["quality_of_translations"]
    assert found["all"]["sentences"] == found["up to 8 words"]["sentences"] == 2
    assert found["all"]["names_kept"] in ("0 of 1", "1 of 1")
    assert found["all"]["numbers_kept"] == "0 of 0"
    assert (found["placeholders"]["sentences"], found["placeholders"]["kept"]) == (1, 1)
    assert found["letters of the source's script"]["in_references"] == 0
    assert inspect([str(DEMO), "--quality", str(text), "--beam-size", "2"]) == 0
    assert "| up to 8 words | 2 | " in capsys.readouterr().out
    assert inspect([str(DEMO), "--quality", str(tmp_path / "none.tsv")]) == 1
    assert "none.tsv" in capsys.readouterr().err


def test_a_checkpoint_of_ours(tmp_path, capsys):
    folder = random_checkpoint(tmp_path / "tiny", kv_heads=1, heads=2, relative_window=3, norm="pre")
    assert inspect([str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "1 heads of keys and values (grouped queries)" in found["attention"]
    assert "vectors by distance up to 3, shared" in found["attention"]
    assert found["weights"] == "float32"
    assert inspect([str(folder)]) == 0
    assert "pre-norm" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "said"), [("", "no known format"), ("none", "there is no such folder")])
def test_a_folder_that_is_neither(tmp_path, capsys, name, said):
    assert inspect([str(tmp_path / name)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
