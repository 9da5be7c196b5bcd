"""What TLS and keys cost a call: four servers take turns, call by call.

    python -m benchmarks.runs.access
    python -m benchmarks.runs.access --write    # into docs/access.md

One caller sends one call after the other. ListModels is next to nothing but a call; Translate is a short sentence on
the demo model. Each table has medians of rounds, and beside them the processor time of the server's process for a call,
which other programs change little. A first call is one on a new connection, with its handshake.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc
import trustme

from benchmarks.engines.server_process import START_SECONDS, ServerProcess
from benchmarks.places import DEMO, ROOT
from benchmarks.report.marked_part import write_part
from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import TranslationServiceStub
from translane_plan.measuring.processes import cpu_seconds
from translane_server.access.keys import Key, KeyHolder, digest_of, make_token, write_keys
from translane_server.healthcheck import Target, problem

PAGE = ROOT / "docs" / "access.md"
TEXT = "你好。"
ROUNDS, CALLS, FIRST_CALLS = 30, 100, 5  # calls in a round
COLUMNS = ("wait", "server")  # the fields of what is measured
NOISE = ("Translate", "wait")  # decoding takes most of it, and hides what access costs
MANY_KEYS = 1000  # in the file of keys, beside the caller's


@dataclass(frozen=True)
class Access:
    """How a server is reached, and what its callers need."""

    name: str
    tls: bool = False
    keys: bool = False


Callers = Callable[["Server"], AbstractContextManager[Callable[[], None]]]
"""Returns what makes a call to a server, while the context lasts."""

PLAIN = Access("plain")
ALL = (PLAIN, Access("TLS", tls=True), Access("keys", keys=True), Access("TLS and keys", tls=True, keys=True))


@dataclass
class Measured:
    """The medians of each round, of one call each [seconds]."""

    wait: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)


class Server(ServerProcess):
    """A server of the demo model, and calls to it."""

    def __init__(self, access: Access, folder: Path) -> None:
        files = _Files(folder)
        flags = ["--tls-cert", str(files.cert), "--tls-key", str(files.key)] if access.tls else []
        flags += ["--keys-file", str(files.keys)] if access.keys else []
        self.access = access
        self._files = files
        command = ["-m", "translane", "serve", str(DEMO), "--metrics-port", "0", "--replicas", "1"]
        super().__init__([*command, "--threads", "1", "--device", "cpu", *flags])

    def channel(self) -> grpc.Channel:
        """A connection of its own."""
        options: list[tuple[str, str | int]] = [("grpc.use_local_subchannel_pool", 1)]
        if not self.access.tls:
            return grpc.insecure_channel(self.address, options)
        options.append(("grpc.ssl_target_name_override", "localhost"))
        return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(self._files.authority), options)

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        return [("authorization", f"Bearer {self._files.token}")] if self.access.keys else []

    def _wait_until_it_answers(self) -> None:
        host, _, port = self.address.rpartition(":")
        end = time.monotonic() + START_SECONDS
        while found := problem(Target(host, port, self.access.tls)):
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError(f"the server does not answer: {found}")
            time.sleep(0.1)


class _Files:
    """A certificate and keys, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key, self.keys = folder / "server.crt", folder / "server.key", folder / "keys.toml"
        known = folder / "caller"
        if not known.exists():
            authority = trustme.CA()
            issued = authority.issue_cert("localhost")
            issued.cert_chain_pems[0].write_to_path(self.cert)
            issued.private_key_pem.write_to_path(self.key)
            authority.cert_pem.write_to_path(folder / "authority.crt")
            token = make_token()
            holders = {f"n{number}": _holder(make_token()) for number in range(MANY_KEYS - 1)}
            self.keys.write_text(write_keys({**holders, "caller": _holder(token)}), encoding="utf-8")
            known.write_text(token, encoding="utf-8")
        self.token = known.read_text(encoding="utf-8")
        self.authority = (folder / "authority.crt").read_bytes()


def _holder(token: str) -> KeyHolder:
    return KeyHolder(keys=(Key(sha256=digest_of(token).hex()),), sentences_in_flight=1000, sentences_per_second=1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS, help="in each round")
    parser.add_argument("--write", action="store_true", help="write the table into docs/access.md")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = [Server(access, folder) for access in ALL]
        for server in servers:
            stack.enter_context(server)
        lines = table(measure(servers, arguments.rounds, arguments.calls))
    print(lines)
    if arguments.write:
        write_part(PAGE, "costs of access", "python -m benchmarks.runs.access --write", lines)


def measure(servers: Sequence[Server], rounds: int, calls: int) -> Mapping[str, Mapping[str, Measured]]:
    """Measure each kind of call to each server. The servers take turns, call by call."""
    found: dict[str, dict[str, Measured]] = {kind: {s.access.name: Measured() for s in servers} for kind in KINDS}
    for number in range(rounds):
        start = number % len(servers)
        order = [*servers[start:], *servers[:start]]  # nobody is always first
        for kind, (callers, share) in KINDS.items():
            _round(order, callers, max(1, round(calls * share)), found[kind])
    return found


def _round(servers: Sequence[Server], callers: Callers, count: int, found: Mapping[str, Measured]) -> None:
    with ExitStack() as stack:
        calls = [stack.enter_context(callers(server)) for server in servers]
        before = [cpu_seconds([server.pid]) for server in servers]
        waits = [[_seconds(call) for call in calls] for _ in range(count)]
        after = [cpu_seconds([server.pid]) for server in servers]
    for place, server in enumerate(servers):
        measured = found[server.access.name]
        measured.wait.append(statistics.median(each[place] for each in waits))
        measured.server.append((after[place] - before[place]) / count)


def _seconds(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@contextmanager
def _list_models(server: Server) -> Iterator[Callable[[], None]]:
    with server.channel() as channel:
        stub = TranslationServiceStub(channel)  # type: ignore[no-untyped-call]
        call = partial(stub.ListModels, pb.ListModelsRequest(), metadata=server.metadata)
        call()
        yield call


@contextmanager
def _translate(server: Server) -> Iterator[Callable[[], None]]:
    with server.channel() as channel:
        stub = TranslationServiceStub(channel)  # type: ignore[no-untyped-call]
        call = partial(stub.Translate, pb.TranslateRequest(texts=[TEXT]), metadata=server.metadata)
        call()
        yield call


@contextmanager
def _first_call(server: Server) -> Iterator[Callable[[], None]]:
    def call() -> None:
        with _list_models(server):
            pass

    yield call


# The kinds of calls: how they are made, and how many there are of each, as a share.
KINDS: Mapping[str, tuple[Callers, float]] = {
    "ListModels": (_list_models, 1.0),
    "Translate": (_translate, 0.3),
    "first call": (_first_call, FIRST_CALLS / CALLS),
}


def table(found: Mapping[str, Mapping[str, Measured]]) -> str:
    """A row for each server: the median wait of its caller, and the median processor time of the server."""
    columns = [(kind, column) for kind in found for column in COLUMNS if (kind, column) != NOISE]
    heads = " | ".join(f"{kind}, {column}" for kind, column in columns)
    rows = [f"| server | {heads} |", "|---|" + "---:|" * len(columns)]
    for access in ALL:
        cells = " | ".join(_cell(found[kind], access.name, column) for kind, column in columns)
        rows.append(f"| {access.name} | {cells} |")
    return "\n".join(rows)


def _cell(by_name: Mapping[str, Measured], name: str, column: str) -> str:
    """The median of a server; beside it, the median of what each round has more than the same round without access."""
    own, plain = getattr(by_name[name], column), getattr(by_name[PLAIN.name], column)
    shown = f"{statistics.median(own) * 1e6:,.0f} µs"
    if name == PLAIN.name:
        return shown
    more = statistics.median(each - other for each, other in zip(own, plain, strict=True))
    return f"{shown} ({more * 1e6:+,.0f})"


if __name__ == "__main__":
    main()
