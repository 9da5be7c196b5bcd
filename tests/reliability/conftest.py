"""A server, the undisturbed answers, and the figures of each test."""

import itertools
from pathlib import Path

import pytest

from helpers.client_calls import CALLS, LONG_STREAMS, write_glossary
from helpers.reliability.cases import make_cases, single
from helpers.reliability.form import form
from helpers.reliability.load import ClientOracle, Load, Oracle
from helpers.reliability.probe import bystander
from helpers.server_process import running_server

CASES = form(24, 32)
REPORT = Path(__file__).parents[2] / "build" / "reliability.txt"


class Figures:
    """What a test measured, in one line of the terminal and of build/reliability.txt."""

    def __init__(self, test: str) -> None:
        self._test = test
        self._values: dict[str, object] = {}

    def add(self, **values: object) -> None:
        """Add figures, such as `lost=0`. Underscores become spaces, and floats get three digits."""
        self._values |= values

    def __str__(self) -> str:
        shown = [f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in self._values.items()]
        return f"{self._test}: {', '.join(shown)}" if shown else ""


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        return " ".join(f"{count} {name}" for name, count in value.items()) or "none"
    return str(value)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory):
    """What an undisturbed server answers to requests of all kinds."""
    with running_server(tmp_path_factory.mktemp("oracle") / "log") as server:
        return Oracle(server.address, [*make_cases(CASES), single()])


@pytest.fixture(scope="session")
def client_flags(tmp_path_factory):
    """The flags of servers that the client calls."""
    glossaries = write_glossary(tmp_path_factory.mktemp("client") / "glossaries")
    return ("--threads=1", "--replicas=1", f"--glossaries={glossaries}")


@pytest.fixture(scope="session")
def client_oracle(tmp_path_factory, client_flags):
    """What an undisturbed server answers to calls of the client, of all kinds."""
    with running_server(tmp_path_factory.mktemp("client_oracle") / "log", *client_flags) as server:
        return ClientOracle(server.address, [*CALLS, *LONG_STREAMS])


@pytest.fixture
def start(tmp_path):
    """Returns `running_server` with a log of its own for each server."""
    numbers = itertools.count()

    def starts(*flags, **arguments):
        return running_server(tmp_path / f"log-{next(numbers)}", *flags, **arguments)

    return starts


@pytest.fixture
def server(start):
    """A server with all defaults, of this test alone."""
    with start() as running:
        yield running


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    """A server with all defaults for several tests, which do it no lasting harm."""
    with running_server(tmp_path_factory.mktemp("shared") / "log") as running:
        yield running


@pytest.fixture
def figures(request, capsys):
    """The figures of the test, which are printed when it ends, however it ends."""
    found = Figures(request.node.name)
    failed = request.session.testsfailed
    yield found
    if request.session.testsfailed == failed:
        assert str(found), "a test that passed has measured nothing"
    if str(found):
        REPORT.parent.mkdir(exist_ok=True)
        with REPORT.open("a", encoding="utf-8") as file:
            file.write(f"{found}\n")
        with capsys.disabled():
            print(f"\n{found}")


@pytest.fixture
def works_and_ends(oracle, figures):
    """Have callers ask a server for so many answers, and end it: no call is lost, and nobody beside them fails."""

    async def works(server, answers, *, seconds=60.0, **load):
        with bystander(server.address) as seen:
            async with Load(server.address, oracle, **{"callers": 8, **load}) as callers:
                await callers.wait_for_answers(answers, seconds)
        exit_code = server.terminate()
        figures.add(exit_code=exit_code, **callers.figures, **seen.figures)
        callers.assert_nothing_lost(answers)
        assert not seen.failed
        assert exit_code == 0

    return works
