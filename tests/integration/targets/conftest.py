"""The services that one suite of the client's tests runs against, and the answers that they must give.

A test that takes `target`, `client` or `connect` runs against every service. Each answer must be that of `expected`: a
server of its own, to which the calls are made one after the other.
"""

from dataclasses import dataclass

import pytest

from helpers.blocking_client import connecting
from helpers.client_calls import ask, write_glossary
from helpers.server_process import BUNDLE, running_server
from translane import Client

# One engine is as small as can be, so that a caller can fill it. Limits that callers meet have their defaults.
ENGINE = ("--threads=1", "--replicas=1", "--max-batch-size=16")


@dataclass(frozen=True)
class Target:
    """A running service."""

    address: str  # what a client is given
    engines: int  # how many engines take the calls, each with a queue and rows of its own


@pytest.fixture(scope="session", autouse=True)
def _bundle():
    if not BUNDLE.exists():
        pytest.skip("the bundled model is not in this tree")


@pytest.fixture(scope="session")
def flags(tmp_path_factory):
    """The flags of every service."""
    return (f"--glossaries={write_glossary(tmp_path_factory.mktemp('targets') / 'glossaries')}",)


SERVER = pytest.param("server", marks=pytest.mark.xdist_group("targets"))
RAY_SERVE = pytest.param("Ray Serve", marks=pytest.mark.xdist_group("ray"))
# For tests of what the client alone does.
on_a_server = pytest.mark.parametrize("target", [SERVER], indirect=True, scope="session")


# The last one runs until all tests have ended, so Ray, where other modules deploy their applications, is first.
@pytest.fixture(scope="session", params=[RAY_SERVE, SERVER])
def target(request, tmp_path_factory, flags):
    """A running service."""
    if request.param == "Ray Serve":
        cluster = request.getfixturevalue("ray_cluster")
        cluster.deploy([str(BUNDLE), *ENGINE, "--metrics-port=0", "--serve-replicas=2", *flags])
        cluster.settled(2)
        yield Target(cluster.address, engines=2)
    else:
        with running_server(tmp_path_factory.mktemp("target") / "log", *ENGINE, *flags) as server:
            yield Target(server.address, engines=1)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, flags):
    """A client of a server that no other client calls."""
    with (
        running_server(tmp_path_factory.mktemp("undisturbed") / "log", "--threads=1", *flags) as server,
        Client(server.address) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def expected(undisturbed):
    """Returns the answer to a call when nothing else goes on."""
    answers = {}

    def answer(call):
        if call.name not in answers:
            answers[call.name] = ask(undisturbed, call)
        return answers[call.name]

    return answer


@pytest.fixture(params=["sync", "async"])
def connect(request, target):
    """Makes clients of the service, of either kind."""
    with connecting(request.param) as make:
        yield lambda **settings: make(target.address, **{"timeout": 120, **settings})


@pytest.fixture
def client(connect):
    """A client of the service."""
    return connect()
