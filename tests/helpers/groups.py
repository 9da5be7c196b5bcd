"""Which tests a process of xdist runs together (`--dist loadgroup`), and in which order.

Tests that share a fixture of their module form a group, so that the fixture is made once and not in each process. Tests
of a module that take no time form one, too. Any other slow test is alone. What takes longest comes first: a long group
at the end would have the other processes wait.

Fixtures of a session that take long to make need a mark: ``pytest.mark.xdist_group("ray")`` is the group of one Ray
cluster for all modules that have it.

xdist 3.8 hands groups on in the names of tests, which pytest 9.2 does not let it change: each test was alone. So the
groups are in a file here.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_SHARED = ("module", "class", "package")  # scopes
_SLOW = 20  # quick tests take as long as one slow test
_FILE = "TESTS_GROUPS"  # the environment variable that names it


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist publishes no types
    """Gives each process whole groups."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._groups: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        if not self._groups:  # asked for once all processes have collected
            self._groups = json.loads(Path(os.environ[_FILE]).read_text(encoding="utf-8"))
        return self._groups[nodeid]


def hand_over_in(file: Path) -> None:
    """Have the processes that are started write the groups into a file."""
    os.environ[_FILE] = str(file)


def distribute(items: list[pytest.Item]) -> None:
    """Put the tests in order, and write their groups down. Each process of xdist does the same."""
    groups = {item.nodeid: _group_of(item) for item in items}
    weights: Counter[str] = Counter()
    for item in items:
        weights[groups[item.nodeid]] += _SLOW if item.get_closest_marker("slow") else 1
    places = {group: place for place, (group, _) in enumerate(weights.most_common())}
    items.sort(key=lambda item: places[groups[item.nodeid]])
    file = Path(os.environ[_FILE])
    whole = file.with_suffix(f".{os.getpid()}")
    whole.write_text(json.dumps(groups), encoding="utf-8")
    whole.replace(file)


def _group_of(item: pytest.Item) -> str:
    if mark := item.get_closest_marker("xdist_group"):
        return str(mark.args[0])
    module = item.nodeid.partition("::")[0]
    shared = _shared_fixtures(item)
    chosen = getattr(getattr(item, "callspec", None), "indices", {})
    if shared and all(name in chosen for name in shared):
        return f"{module}{sorted((name, chosen[name]) for name in shared)}"
    return module if shared or not item.get_closest_marker("slow") else item.nodeid


def _shared_fixtures(item: pytest.Item) -> list[str]:
    """Return the fixtures of our own that a test shares with its module."""
    if not isinstance(item, pytest.Function):
        return []
    found = item._fixtureinfo.name2fixturedefs.items()  # pytest publishes no way to ask for them
    return [name for name, (*_, fixture) in found if fixture.scope in _SHARED and fixture.baseid]
