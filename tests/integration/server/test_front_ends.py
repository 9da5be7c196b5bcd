"""`translane serve --front-ends 2`: one server to its callers, and several processes to whoever looks closer."""

import contextlib
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from urllib.request import urlopen

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from helpers.certificates import Authority
from helpers.server_process import ServerProcess, assert_gone
from translane.v1 import models_pb2, models_pb2_grpc, translation_pb2_grpc
from translane.v1 import translation_pb2 as pb
from translane_client import Client
from translane_server.access.keys import Key, KeyHolder, digest_of, make_token, write_keys

# Each new connection goes to either front end. That so many go to the same one does not happen.
MANY = 64
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Serving:
    """A server of two front ends. Its processes may be in another order than the front ends' numbers."""

    def __init__(self, server):
        self.server = server
        self.address = server.wait_for(r"listening on (\S+:\d+) with 2 front ends")[1]
        self.processes = psutil.Process(server.process.pid).children()
        self.everybody = psutil.Process(server.process.pid).children(recursive=True)
        assert len(self.processes) == 2

    def port(self, what):
        return self.server.wait_for(rf"{what} on (?:http://)?127\.0\.0\.1:(\d+)")[1]

    @contextlib.contextmanager
    def connection(self):
        """A connection of its own: gRPC would share one between channels."""
        with grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            yield translation_pb2_grpc.TranslationServiceStub(channel)

    def translate(self, text):
        with self.connection() as stub:
            return stub.Translate(pb.TranslateRequest(texts=[text]), timeout=20).translations[0].hypotheses[0].text

    def samples(self, name, query=""):
        """The values of a metric's samples, by their labels."""
        with urlopen(f"http://127.0.0.1:{self.port('metrics')}/metrics{query}") as response:
            families = list(text_string_to_metric_families(response.read().decode()))
        assert len({family.name for family in families}) == len(families)
        return [
            (sample.labels, sample.value) for family in families for sample in family.samples if sample.name == name
        ]

    def wait_for_value(self, name, value):
        deadline = time.monotonic() + 20
        while sum(found for _, found in self.samples(name)) != value:
            assert time.monotonic() < deadline, (name, self.samples(name), self.server.lines)
            time.sleep(0.05)

    def health(self, service=""):
        with grpc.insecure_channel(f"127.0.0.1:{self.port('health')}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20).status


@pytest.fixture
def start():
    started = []

    def run(*argv, **environ):
        started.append(ServerProcess("--front-ends=2", "--replicas=2", *argv, **environ))
        return started[-1]

    yield run
    for process in started:
        process.close()


def command(*argv):
    return subprocess.run(
        [sys.executable, "-m", "translane", "serve", *argv], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
def test_connections_reach_all_front_ends_which_report_as_one_server(start):
    serving = Serving(start("--http-port=0", "--health-port=0", "--log-format=json"))
    texts = [f"text {number}" for number in range(MANY)]
    assert [serving.translate(text) for text in texts] == texts

    calls = [
        (labels["front_end"], value)
        for labels, value in serving.samples("grpc_server_handled_total")
        if labels["grpc_method"] == "Translate"
    ]
    assert sorted(number for number, _ in calls) == ["0", "1"]
    assert all(value > 0 for _, value in calls)
    assert sum(value for _, value in calls) == MANY
    assert sum(value for _, value in serving.samples("translane_request_duration_seconds_count")) == MANY
    assert {labels["front_end"] for labels, _ in serving.samples("translane_rows_limit")} == {"0", "1"}
    assert serving.samples("translane_front_ends") == [({}, 2)]
    assert serving.samples("translane_front_ends_limit", "?name[]=translane_front_ends_limit") == [({}, 2)]
    assert len(serving.samples("process_open_fds")) == 3  # with the parent's own

    assert serving.health() == serving.health("translane.v1.TranslationService/fake") == SERVING
    connection = HTTPConnection("127.0.0.1", int(serving.port("JSON")))
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()

    told = [json.loads(line) for line in serving.server.lines]
    assert [line.get("front_end") for line in told if line["message"].startswith("listening")] == [None]
    assert {line["front_end"] for line in told if line["message"].startswith("serving")} == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_callers_who_try_again_lose_nothing_with_a_front_end(start, number):
    serving = Serving(start(f"--replica-timeout={2 if number == signal.SIGSTOP else 60}"))
    lost = serving.processes[1]
    its_replicas = lost.children(recursive=True)
    texts = [f"text {number}" for number in range(MANY)]

    def translate(text):
        with Client(serving.address, timeout=40) as client:
            return [client.translate(text).text for _ in range(4)]

    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(translate, text) for text in texts]
        lost.send_signal(number)
        assert [answer.result() for answer in answers] == [[text] * 4 for text in texts]
    assert_gone(lost, *its_replicas)
    serving.server.wait_for(r"front end \d was ended by SIGKILL")
    serving.server.wait_for(r"front end \d has been replaced")
    serving.wait_for_value("translane_front_ends", 2)
    assert serving.samples("translane_front_end_losses_total") == [({}, 1)]
    for text in texts:  # also those whom the new front end gets
        assert serving.translate(text) == text
    assert len({labels["front_end"] for labels, _ in serving.samples("translane_rows_limit")}) == 2


@pytest.mark.slow
def test_a_signal_drains_all_front_ends(start):
    serving = Serving(start(FAKE_STEP_SECONDS="0.05"))
    with contextlib.ExitStack() as stack:
        stubs = [stack.enter_context(serving.connection()) for _ in range(16)]
        running = [stub.Translate.future(pb.TranslateRequest(texts=["ten letters"]), timeout=20) for stub in stubs]
        serving.wait_for_value("translane_open_calls", 16)
        for process in (*serving.everybody, psutil.Process(serving.server.process.pid)):
            process.send_signal(signal.SIGTERM)  # a service manager may tell all of them
        assert {call.result().translations[0].hypotheses[0].text for call in running} == {"ten letters"}
    assert serving.server.exit_code() == 0
    serving.server.wait_for("every accepted request is answered")
    assert not any(" ERROR " in line for line in serving.server.lines)
    assert_gone(*serving.everybody)


@pytest.mark.slow
def test_the_grace_period_ends_for_all_and_a_second_signal_ends_it_at_once(start):
    def left(*argv, signals):
        serving = Serving(start(*argv, FAKE_STEP_SECONDS="1"))
        with serving.connection() as stub:
            running = stub.Translate.future(pb.TranslateRequest(texts=["twenty letters or so"]), timeout=20)
            serving.wait_for_value("translane_open_calls", 1)
            for _ in range(signals):
                serving.server.stop()
                serving.server.wait_for("SIGTERM: finishing")
            assert running.code() == grpc.StatusCode.UNAVAILABLE
        code = serving.server.exit_code()
        assert_gone(*serving.everybody)
        return code, serving.server

    code, server = left("--grace-period=0.1", signals=1)
    assert code == 0
    server.wait_for("requests unfinished")
    assert left(signals=2)[0] == 128 + signal.SIGTERM


@pytest.mark.slow
def test_front_ends_end_with_a_parent_that_is_killed(start):
    serving = Serving(start())
    serving.server.process.kill()
    assert_gone(*serving.everybody)


@pytest.mark.slow
def test_a_signal_while_front_ends_load(start):
    server = start(FAKE_WARM_UP_SECONDS="60")
    server.wait_for("replicas: .*front_end=0")
    server.wait_for("replicas: .*front_end=1")
    everybody = psutil.Process(server.process.pid).children(recursive=True)
    server.stop()
    assert server.exit_code() == 0
    assert not any("Traceback" in line for line in server.lines)
    assert_gone(*everybody)


@pytest.mark.slow
def test_models_change_in_all_front_ends(start):
    serving = Serving(start("--admin-port=0", "--health-port=0"))
    model = "translane.v1.TranslationService/fake"
    with grpc.insecure_channel(f"127.0.0.1:{serving.port('models are loaded and unloaded')}") as channel:
        admin = models_pb2_grpc.ModelServiceStub(channel)
        unloaded = admin.UnloadModel(models_pb2.UnloadModelRequest(name="fake"), timeout=20)
        assert unloaded.model.state == pb.MODEL_STATE_UNLOADED
        assert [value for _, value in serving.samples("translane_model_loaded")] == [0, 0]
        assert serving.health() == serving.health(model) == NOT_SERVING
        admin.LoadModel(models_pb2.LoadModelRequest(name="fake"), timeout=20)
        assert [value for _, value in serving.samples("translane_model_loaded")] == [1, 1]
        assert serving.health() == serving.health(model) == SERVING
        assert not admin.ReloadModel(models_pb2.ReloadModelRequest(name="fake"), timeout=20).changed
        with pytest.raises(grpc.RpcError) as refused:
            admin.LoadModel(models_pb2.LoadModelRequest(name="none"), timeout=20)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert (refused.value.details() or "").startswith("front end 0: name: there is no model")

    serving.server.stop(signal.SIGHUP)
    for number in (0, 1):
        serving.server.wait_for(f"reloaded: 0 changed, 0 new, 0 removed front_end={number}")


@pytest.mark.slow
def test_certificates_and_keys_hold_for_all(start, tmp_path):
    authority = Authority(tmp_path)
    files = authority.files("localhost")
    token = make_token()
    holder = KeyHolder(keys=(Key(sha256=digest_of(token).hex()),))
    (tmp_path / "keys.toml").write_text(write_keys({"ann": holder}))
    tls = [f"--tls-cert={files.cert}", f"--tls-key={files.key}", "--metrics-tls"]
    serving = Serving(start("--host=localhost", *tls, f"--keys-file={tmp_path / 'keys.toml'}"))

    def translate(metadata):
        credentials = grpc.ssl_channel_credentials(authority.pem)
        with grpc.secure_channel(serving.address, credentials, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = translation_pb2_grpc.TranslationServiceStub(channel)
            return stub.Translate(pb.TranslateRequest(texts=["abc"]), timeout=20, metadata=metadata)

    for _ in range(MANY // 4):
        assert translate([("authorization", f"Bearer {token}")]).translations
        with pytest.raises(grpc.RpcError) as refused:
            translate([])
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    context = ssl.create_default_context(cafile=str(authority.file))
    address = serving.server.wait_for("metrics on (https://.*)")[1]
    with urlopen(address, context=context) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    sentences = [sample for family in families for sample in family.samples if "key_sentences_total" in sample.name]
    assert {(sample.labels["front_end"], sample.labels["key"]) for sample in sentences} == {("0", "ann"), ("1", "ann")}
    assert sum(sample.value for sample in sentences) == MANY // 4


@pytest.mark.slow
def test_limits_of_a_key_hold_for_all_front_ends_together(start, tmp_path):
    token = make_token()
    holder = KeyHolder(keys=(Key(sha256=digest_of(token).hex()),), sentences_per_second=0.001)
    (tmp_path / "keys.toml").write_text(write_keys({"ann": holder}))
    serving = Serving(start(f"--keys-file={tmp_path / 'keys.toml'}"))

    def accepted():
        """How many of many requests are accepted; all others are refused for the key's limit."""
        refused = []
        for _ in range(MANY // 2):
            with serving.connection() as stub:
                request, metadata = pb.TranslateRequest(texts=["a"]), [("authorization", f"Bearer {token}")]
                try:
                    stub.Translate(request, metadata=metadata, timeout=20)
                except grpc.RpcError as error:
                    refused.append(error.code())
        assert set(refused) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        return MANY // 2 - len(refused)

    assert accepted() == 1
    serving.processes[0].kill()
    serving.server.wait_for(r"front end \d has been replaced")
    assert accepted() == 0  # a front end that comes back finds the bucket as it was


@pytest.mark.slow
def test_the_server_ends_when_no_front_end_is_left(start):
    serving = Serving(start("--health-port=0", FAKE_MOST_LOSSES="0"))
    serving.processes[0].kill()
    serving.server.wait_for(r"front end \d was lost 1 times in 60 seconds")
    assert serving.health() == SERVING
    assert serving.translate("who is left") == "who is left"
    serving.processes[1].kill()
    assert serving.server.exit_code() == 1
    serving.server.wait_for("no front end is left")
    assert_gone(*serving.everybody)


@pytest.mark.slow
def test_a_port_in_use(start):
    port = Serving(start()).address.partition(":")[2]
    for others in (["--front-ends=2"], ["--front-ends=1"]):
        second = start(*others, f"--port={port}")
        assert second.exit_code() == 1
        second.wait_for(f"^translane serve: cannot listen on 127.0.0.1:{port}: Address already in use$")
        assert len(second.lines) == 1
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        third = start(f"--port={port}")
        assert third.exit_code() == 1
        third.wait_for(f"^translane serve: cannot listen on 127.0.0.1:{port}: Address already in use$")


@pytest.mark.slow
def test_what_stops_a_front_end_stops_the_server(tmp_path, start):
    refused = command("--front-ends=64", str(tmp_path), "--max-batch-size=8")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("translane serve: --front-ends (64) must be at most")
    checked = command("--front-ends=64", str(tmp_path), "--max-batch-size=8", "--check")
    assert (checked.returncode, checked.stdout, checked.stderr) == (2, "", refused.stderr)
    server = start("--glossaries", str(tmp_path / "none"))
    assert server.exit_code() == 2
    (line,) = server.lines
    assert line.startswith("translane serve: ")
    assert line.endswith("the folder cannot be read: No such file or directory")
