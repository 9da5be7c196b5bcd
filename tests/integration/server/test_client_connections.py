"""The client and real servers: TLS and keys, two servers that share the load, and connections that end by age."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Unpack

import pytest

from fakes.serving import serving
from helpers.certificates import Authority
from helpers.commands import keys as run_keys
from helpers.reliability.server_process import BUNDLE, ServerProcess, running_server
from translane import AsyncClient, Client, ConnectionOptions, RetryPolicy, Unauthenticated

pytestmark = pytest.mark.slow

TRANSLATIONS = 'grpc_server_handled_total{grpc_code="OK",grpc_method="Translate"'


def key_of(file: Path, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_keys(["add", name, "--file", str(file)], {}) == 0
    return capsys.readouterr().out.split()[-1]


async def test_a_key_over_mutual_tls(tmp_path: Path, capsys):
    authority = Authority(tmp_path)
    server_files, own = authority.files("localhost", "127.0.0.1", stem="server"), authority.files("client")
    key = key_of(tmp_path / "keys.toml", "ours", capsys)
    async with serving(
        tls_cert=server_files.cert,
        tls_key=server_files.key,
        tls_client_ca=authority.file,
        keys_file=tmp_path / "keys.toml",
    ) as running:
        tls: ConnectionOptions = {"ca": authority.file, "cert": own.cert, "key": own.key}
        address = f"localhost:{running.server.port}"
        async with AsyncClient(address, **tls | {"token": key}) as client:
            assert (await client.translate("hello")).text == "hello"
            assert "".join([delta async for delta in client.translate_stream("hello")]) == "hello"
        once = RetryPolicy(attempts=1)
        for token, reason in ((None, "MISSING_KEY"), (f"{key[:-1]}x", "UNKNOWN_KEY")):
            async with AsyncClient(address, retry=once, **tls | {"token": token}) as client:
                with pytest.raises(Unauthenticated) as caught:
                    await client.translate("hello")
                assert caught.value.reason == reason


async def known(port: int, **options: Unpack[ConnectionOptions]) -> None:
    """Wait until the server knows a key."""
    async with asyncio.timeout(60), AsyncClient(f"127.0.0.1:{port}", **options) as client:
        while True:
            try:
                await client.models()
            except Unauthenticated:
                await asyncio.sleep(0.2)
            else:
                return


async def test_certificates_and_keys_that_are_replaced_under_load_cost_no_call(tmp_path: Path, capsys):
    authority = Authority(tmp_path)
    files, own = authority.files("127.0.0.1", stem="server"), authority.files("client")
    keys, token = tmp_path / "keys.toml", tmp_path / "token"
    token.write_text(key_of(keys, "ours", capsys))
    async with (
        serving(
            tls_cert=files.cert,
            tls_key=files.key,
            tls_client_ca=authority.file,
            keys_file=keys,
            max_connection_age=1,
            grace_period=5,
        ) as running,
        AsyncClient(
            f"127.0.0.1:{running.server.port}",
            ca=authority.file,
            cert=own.cert,
            key=own.key,
            token_file=token,
            retry=RetryPolicy(attempts=1),
        ) as client,
    ):
        stop = asyncio.Event()

        async def caller() -> int:
            calls = 0
            while not stop.is_set():
                assert (await client.translate("hello")).text == "hello"
                calls += 1
            return calls

        callers = [asyncio.create_task(caller()) for _ in range(4)]
        for _ in range(3):
            await asyncio.sleep(0.5)
            authority.files("127.0.0.1", stem="server")
            authority.files("client")
            assert run_keys(["rotate", "ours", "--keep", "5m", "--file", str(keys)], {}) == 0
            fresh = tmp_path / "fresh"
            fresh.write_text(capsys.readouterr().out.split()[-1])
            await known(running.server.port, ca=authority.file, cert=own.cert, key=own.key, token_file=fresh)
            fresh.replace(token)
        await asyncio.sleep(0.5)
        stop.set()
        assert min(await asyncio.gather(*callers)) > 10


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    if not BUNDLE.exists():
        pytest.skip("the bundled model is not in this tree")
    with ExitStack() as stack:
        yield [stack.enter_context(running_server(tmp_path / f"log-{n}", "--threads=1")) for n in range(2)]


def translations_of(server: ServerProcess) -> float:
    return sum(value for name, value in server.metrics().items() if name.startswith(TRANSLATIONS))


def test_two_servers_share_the_load_and_one_that_is_killed_costs_no_call(servers: list[ServerProcess]):
    with Client([server.address for server in servers]) as client:
        expected = client.translate("我有一只猫").text
        while not all(map(translations_of, servers)):  # until the client is connected to both
            client.translate("你好")
        before = [translations_of(server) for server in servers]
        assert [client.translate("我有一只猫").text for _ in range(40)] == [expected] * 40
        after = [translations_of(server) for server in servers]
        assert [now - then for now, then in zip(after, before, strict=True)] == [20, 20]

        answers: list[str] = []
        stop = threading.Event()

        def caller() -> None:
            while not stop.is_set():
                answers.append(client.translate("我有一只猫").text)

        callers = [threading.Thread(target=caller) for _ in range(4)]
        for each in callers:
            each.start()
        while len(answers) < 40:
            time.sleep(0.01)
        servers[0].process.send_signal(signal.SIGKILL)
        servers[0].process.wait()
        more = len(answers) + 80
        while len(answers) < more and all(each.is_alive() for each in callers):
            time.sleep(0.01)
        stop.set()
        for each in callers:
            each.join()
        assert len(answers) >= more  # a caller that got an error has ended
        assert set(answers) == {expected}


async def test_connections_that_end_by_age_cost_no_call():
    async with (
        serving(max_connection_age=1, grace_period=5) as running,
        AsyncClient(f"127.0.0.1:{running.server.port}", retry=RetryPolicy(attempts=1)) as client,
    ):
        ends = asyncio.get_running_loop().time() + 3
        calls = 0
        while asyncio.get_running_loop().time() < ends:
            assert (await client.translate("hello")).text == "hello"
            calls += 1
    assert calls > 10
