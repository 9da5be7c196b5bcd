"""What the rooms of the benchmarks may import."""

import ast

import pytest

from benchmarks.places import ROOT

FOLDER = ROOT / "benchmarks"
ROOMS = {
    "models": {"models"},
    "engines": {"engines", "models"},
    "measuring": {"measuring", "engines", "models"},
    "report": {"report", "measuring", "engines", "models"},
    "processors": {"processors"},
    "runs": {"runs", "report", "measuring", "engines", "models", "processors"},
}


def imported(path):
    """The modules that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_room_is_in_the_table():
    rooms = {path.parent.name for path in FOLDER.glob("*/__init__.py")}
    assert rooms == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_it_may(room):
    used = {
        name.split(".")[1]
        for path in (FOLDER / room).glob("*.py")
        for name in imported(path)
        if name[:11] == "benchmarks."
    }
    assert used & set(ROOMS) <= ROOMS[room]


@pytest.mark.parametrize("path", sorted((FOLDER / "runs").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_a_run_says_at_its_top_how_to_start_it(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring is not None
    assert f"python -m benchmarks.runs.{path.stem}" in docstring
