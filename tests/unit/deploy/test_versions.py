"""scripts/set-version takes versions alone."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("word", ["1.2", "v1.2.3", "1.2.3/x", '1.2.3"', "1.2.3rc", "--chek", "-h", "1.2.3\n2"])
def test_a_word_that_is_no_version_changes_no_file(word, tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/set-version", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    run = subprocess.run([tmp_path / "scripts/set-version", word], capture_output=True, text=True, timeout=60)
    assert (run.returncode, "is no version such as" in run.stderr) == (2, True)
    assert (tmp_path / "pyproject.toml").read_bytes() == (ROOT / "pyproject.toml").read_bytes()
