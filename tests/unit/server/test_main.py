"""The command line of `translane serve`: its help, its version, and a missing package."""

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from translane_server.settings import ServerSettings
from translane_server.settings_loader import flag_name


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


def test_the_help_has_every_setting_and_words_for_values():
    ended = run("--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage: translane serve [options] MODEL ...\n")
    flags = dict(re.findall(r"^  (--[\w-]+)(?:, --no-[\w-]+| (\S+))?(?:  |$)", ended.stdout, re.MULTILINE))
    assert set(flags) == {flag_name(ServerSettings, name) for name in ServerSettings.model_fields} - {
        "--model-settings",
        "MODEL",
    } | {"--config"}
    words = {word for word in flags.values() if not word.startswith("{")}
    assert words == {"", "FILE", "FOLDER", "HOST", "PORT", "N", "SECONDS", "BYTES", "SHARE", "KEY", "ORIGIN"}
