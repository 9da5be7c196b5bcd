"""`translane export` and `translane train` alike: help, version, and what they say where a package is missing."""

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from translane_export import __main__ as export
from translane_export.missing_packages import say_missing
from translane_export.train import __main__ as train

COMMANDS = {"translane export": export, "translane train": train}
both = pytest.mark.parametrize("program", COMMANDS)


@both
@pytest.mark.parametrize("package", ["torch", "pydantic", "sentencepiece"])
def test_a_missing_package_is_one_sentence(program, package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from {COMMANDS[program].__name__} import main; sys.exit(main(['--help']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr == f"{program}: {package} is not installed; install translane[export]\n"
    assert (ended.returncode, ended.stdout) == (1, "")


def test_a_missing_module_of_our_own_is_no_missing_package():
    for error in (ModuleNotFoundError("x", name="translane_export.none"), ModuleNotFoundError("x")):
        with pytest.raises(ModuleNotFoundError):
            say_missing("translane export", error, ())


@both
def test_the_version(program, capsys):
    with pytest.raises(SystemExit) as ended:
        COMMANDS[program].main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{program} {version('translane')}\n"


@both
def test_the_help_speaks_of_files_and_numbers(program, capsys):
    with pytest.raises(SystemExit) as ended:
        COMMANDS[program].main(["--help"])
    assert ended.value.code == 0
    page = capsys.readouterr().out
    values = set(re.findall(r"^ +(?:-\w \S+, )?--[a-z0-9-]+ (\S+)", page, flags=re.MULTILINE))
    words = {value for value in values if not value.startswith("{")}
    assert {"FILE", "FOLDER", "TAG", "N", "X"} <= words
    assert words <= {
        "FILE",
        "FOLDER",
        "TAG",
        "N",
        "X",
        "TEXT",
        "NAME",
        "NAMES",
        "MINUTES",
        "FILES",
        "TAGS",
        "NAME=VALUE,…",
    }
