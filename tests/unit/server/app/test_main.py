"""The command line of `translane serve`: its help, its version, and a missing package."""

import subprocess
import sys
from importlib.metadata import version

import pytest


def run(*argv, without=None):
    """Runs `translane serve` in an interpreter that cannot import the package `without`."""
    code = f"import sys; sys.modules.update({dict.fromkeys([without] if without else [])})\n"
    code += "from translane.__main__ import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, "serve", *argv], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("package", ["grpc", "pydantic", "numpy", "onnxruntime"])
def test_a_missing_package_is_one_sentence(package):
    ended = run("bundle", without=package)
    sentence = f"{package} is not installed: pip install 'translane[server]', or 'translane[server-cuda]' for GPUs"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"translane serve: {sentence}\n")


def test_the_version():
    ended = run("--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"translane serve {version('translane')}\n", "")
