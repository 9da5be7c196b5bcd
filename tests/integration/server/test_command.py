"""`translane serve` as a process: its exit codes, its signals, and what it says."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import psutil
import pytest

from helpers.bundles import random_bundle
from helpers.file_server import wait_until
from helpers.otlp_receiver import Receiver, tree_of
from helpers.server_process import ServerProcess, assert_gone, fake_model, running_server
from helpers.tiny_bundle import TINY
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_server.bundle.devices import why_no_cuda

pytestmark = pytest.mark.slow  # each starts a process or more


@pytest.fixture
def start(tmp_path):
    started: list[ServerProcess] = []

    def begin(*flags, **variables):
        started.append(ServerProcess(tmp_path / f"log{len(started)}", ["x", *flags], **fake_model(**variables)))
        return started[-1]

    yield begin
    for process in started:
        process.stop()


@pytest.fixture
def call():
    channels = []

    def translate(process, text):
        port = process.wait_for(r"listening on 127\.0\.0\.1:(\d+)")[1]
        channels.append(grpc.insecure_channel(f"127.0.0.1:{port}"))
        stub = translation_pb2_grpc.TranslationServiceStub(channels[-1])
        return stub.Translate.future(pb.TranslateRequest(texts=[text]), timeout=20)

    yield translate
    for channel in channels:
        channel.close()


def test_a_reload_that_is_asked_for_too_early_ends_nothing(tmp_path):
    server = ServerProcess(tmp_path / "log", [str(TINY)])
    try:
        wait_until(server.descendants)  # which start before anything else is imported
        server.signal(signal.SIGHUP)
        server.wait_for("serving on cpu")
    finally:
        server.stop()


@pytest.mark.parametrize("hurried", [False, True])
def test_a_server_that_leaves_is_not_ready_and_still_answers(start, call, hurried):
    server = start(f"--drain-delay={60 if hurried else 2}", "--http-port=0")
    server.wait_for("serving on")
    healthz = f"http://{server.wait_for('JSON on http://(.*)')[1]}/healthz"
    assert urlopen(healthz).status == 200
    server.signal(signal.SIGTERM)
    server.wait_for("SIGTERM: not ready any more")
    with pytest.raises(HTTPError, match="503"):
        urlopen(healthz)
    assert call(server, "late").result().translations[0].hypotheses[0].text == "late"
    if hurried:
        server.signal(signal.SIGTERM)
    assert server.exit_code() == (128 + signal.SIGTERM if hurried else 0)


def test_the_page_is_there_by_default_and_a_port_that_is_taken_is_no_fault(start):
    """Another program of this machine may have the port, too."""
    server = start("--page")
    said = server.wait_for("(a page to translate on: http://127.0.0.1:8080/|no page to translate on: .*:8080.*)$")[1]
    if said.startswith("a page"):
        assert b"<title>Translane</title>" in urlopen("http://127.0.0.1:8080/").read()
        server.stop()
        server = start("--page", "--admin-port=8080")
        server.wait_for("no page to translate on: cannot listen on 127.0.0.1:8080: Address already in use$")
        server.wait_for("serving on cpu")
    server.stop()
    with closing(socket.socket()) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wait_until(lambda: has_bound(holder))
        holder.listen()
        server = start("--page")
        server.wait_for("no page to translate on: cannot listen on 127.0.0.1:8080: Address already in use$")
        server.wait_for("serving on cpu")


def has_bound(listener):
    with suppress(OSError):
        listener.bind(("127.0.0.1", 8080))
        return True
    return False


def test_a_second_signal_stops_at_once(start, call):
    server = start(FAKE_STEP_SECONDS="0.5")
    server.wait_for("serving on")
    running = call(server, "twenty letters or so")
    server.wait_for_a_request()
    server.signal()
    server.wait_for("SIGTERM: finishing what is running")
    server.signal()
    assert running.code() == grpc.StatusCode.UNAVAILABLE
    assert server.exit_code() == 128 + signal.SIGTERM


def test_a_signal_while_the_model_loads(start, call):
    server = start(FAKE_WARM_UP_SECONDS="60")
    server.wait_for("metrics on")
    assert call(server, "x").code() == grpc.StatusCode.UNAVAILABLE
    server.signal()
    assert server.exit_code() == 0
    assert not any("Traceback" in line for line in server.lines)


def family(server):
    """The process that has loaded the model, and the replicas that it has forked."""
    (loader,) = psutil.Process(server.process.pid).children()
    return loader, loader.children()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nobody_notices_that_what_replicas_fork_from_ends_or_hangs(start, call, number):
    server = start("--replicas=2", "--threads=1", "--replica-timeout=1", FAKE_STEP_SECONDS="0.05")
    server.wait_for("serving on")
    loader, replicas = family(server)
    running = [call(server, f"ten letter{number}") for number in range(4)]
    server.wait_for_a_request()
    loader.send_signal(number)
    replicas[0].kill()  # a parent that hangs is noticed when it is needed
    texts = [each.result().translations[0].hypotheses[0].text for each in running]
    assert texts == [f"ten letter{number}" for number in range(4)]
    assert call(server, "once more").result().translations[0].hypotheses[0].text == "once more"
    server.wait_for("replica [01] has been replaced")
    if number == signal.SIGKILL:
        server.wait_for("replica [01] was ended by SIGKILL")
    assert_gone(loader, *replicas)  # without their parent, nobody would tell how they end
    server.signal()
    assert server.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_drains(start, call, number):
    """As a terminal sends Ctrl-C, and systemd SIGTERM."""
    server = start("--replicas=2", "--threads=1", FAKE_STEP_SECONDS="0.05")
    server.wait_for("serving on")
    loader, replicas = family(server)
    assert len(replicas) == 2
    running = call(server, "ten letters")
    server.wait_for_a_request()
    for process in (*replicas, loader, server.process):
        process.send_signal(number)
    assert running.result().translations[0].hypotheses[0].text == "ten letters"
    assert server.exit_code() == 0
    server.wait_for("every accepted request is answered")


@pytest.mark.parametrize(("count", "killed", "ignored"), [(1, 0, ""), (2, 0, ""), (2, -1, ""), (2, -1, "1")])
def test_a_replica_that_ends_while_it_loads_is_named(start, count, killed, ignored):
    """One that loads the model for itself, or what has loaded it for two, or one of these.

    Whoever has started the server may ignore the ends of its children, which a server would inherit.
    """
    server = start(f"--replicas={count}", "--threads=1", FAKE_WARM_UP_SECONDS="60", FAKE_IGNORES_ENDS=ignored)
    server.wait_for("metrics on")
    wait_until(lambda: len(server.descendants()) >= (1 if count == 1 else 3), 10)
    time.sleep(0.5)
    found = server.descendants()
    found[killed].kill()
    assert server.exit_code() == 1
    server.wait_for("^translane serve: replica [01] was ended by SIGKILL while it loaded the model$")
    assert_gone(*found)


def test_traces(start, call):
    """The variables of the environment alone switch them on. The last spans are sent before the process ends."""
    with Receiver() as receiver:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.address, "OTEL_SERVICE_NAME": "tested"}
        server = start("--log-format=json", "--log-level=debug", **variables)
        server.wait_for("traces are sent by otlp")
        server.wait_for("serving on")
        assert call(server, "abc").result().translations
        line = json.loads(server.wait_for(r'{.*"message": "request".*"Translate".*}')[0])
        server.signal()
        assert server.exit_code() == 0
        spans = receiver.spans
    assert {span.resource["service.name"] for span in spans} == {"tested"}
    assert (spans[0].trace_id, spans[0].span_id) == (line["trace_id"], line["span_id"])
    phases = ["    read", "    sentence", "      queue", "      encode", "      decode", "    build"]
    assert tree_of(spans) == ["translane.v1.TranslationService/Translate", "  model fake", *phases]


def test_a_service_manager_hears_when_the_model_translates_and_when_the_server_stops(start, call, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(30)
        server = start(FAKE_WARM_UP_SECONDS="0.5", NOTIFY_SOCKET=path)
        server.wait_for("metrics on")
        assert "READY=1" in manager.recv(4096).decode().splitlines()
        assert call(server, "x").result().translations
        server.signal()
        assert "STOPPING=1" in manager.recv(4096).decode().splitlines()
        assert server.exit_code() == 0
        manager.settimeout(0)
        with pytest.raises(BlockingIOError):
            manager.recv(4096)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    sizes = {"d_model": 16, "ffn_size": 16, "encoder_layers": 1, "decoder_layers": 1, "max_positions": 16}
    return random_bundle(tmp_path_factory.mktemp("half") / "bundle", export={"precision": "fp16"}, **sizes)


@pytest.fixture(scope="module")
def why_not():
    """Why CUDA does not work on this machine."""
    return why_no_cuda("fp16") or pytest.skip("CUDA works on this machine")


def test_half_precision_is_served_on_the_cpu_where_cuda_does_not_work_and_one_line_says_why(
    call, half, why_not, tmp_path
):
    with running_server(tmp_path / "log", str(half), "--device=auto", "--threads=1") as server:
        server.wait_for("serving on cpu")
        assert call(server, "你好！").result().translations[0].hypotheses
        assert server.terminate() == 0
        warnings = [line.partition(" WARNING ")[2] for line in server.lines if " WARNING " in line]
    assert warnings == [f"running on the CPU, not on CUDA: {why_not}"]


def test_cuda_that_does_not_work_ends_the_server_with_one_sentence(half, why_not):
    command = [sys.executable, "-m", "translane", "serve", str(half), "--device=cuda", "--port=0", "--metrics-port=0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(r"translane serve: device cuda: [^\n]+\n", ended.stderr)
