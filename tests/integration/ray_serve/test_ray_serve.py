"""What only a look behind Ray Serve shows: the bytes of its answers, and what its engine does meanwhile."""

import asyncio
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest

pytest.importorskip("ray.serve", reason="the extra ray is not installed")

from helpers.ports import free_port
from helpers.reliability.answers import Oracle
from helpers.reliability.cases import make_cases, single
from helpers.reliability.failures import failure_of
from helpers.reliability.load import ask
from helpers.reliability.server_process import BUNDLE, running_server
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree"),
]

ENGINE = [str(BUNDLE), "--replicas", "1", "--threads", "1", "--max-batch-size", "32"]
# Long enough to be cancelled in the middle: no translation ends by itself.
LONG = pb.TranslateRequest(texts=["我有一只猫。"] * 128, options=pb.DecodingOptions(min_length=200, max_length=200))


class Metrics:
    """What an engine counts."""

    def __init__(self, port):
        self._url = f"http://127.0.0.1:{port}/metrics"

    def value(self, start):
        """The sum of the samples whose lines start so."""
        with urlopen(self._url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start))

    async def becomes(self, start, holds):
        end = time.monotonic() + 20
        while not holds(value := await asyncio.to_thread(self.value, start)):
            assert time.monotonic() < end, (start, value)
            await asyncio.sleep(0.05)


ACTIVE = 'translane_rows{model="zh-en",state="active"}'
WAITING = "translane_sentences_waiting{"


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    """What a server answers."""
    flags = ("--replicas=1", "--threads=1", "--max-batch-size=32")
    with running_server(tmp_path_factory.mktemp("oracle") / "log", *flags) as server:
        return Oracle(server.address, [*make_cases(16), single()])


@pytest.fixture(scope="module")
def metrics_port():
    return free_port()


@pytest.fixture(scope="module")
def serving(ray_cluster, metrics_port):
    ray_cluster.deploy([*ENGINE, "--metrics-port", str(metrics_port)])
    ray_cluster.settled(1)
    return ray_cluster


@pytest.fixture(scope="module")
def metrics(metrics_port):
    return Metrics(metrics_port)


@pytest.fixture
async def stub(serving):
    async with grpc.aio.insecure_channel(serving.address, options=[("grpc.enable_retries", 0)]) as channel:
        yield translation_pb2_grpc.TranslationServiceStub(channel)


async def test_all_rpcs_answer_with_the_bytes_of_a_server(stub, oracle):
    kinds = set()
    for case in oracle.cases:
        assert oracle.is_right(case, await ask(stub, case, 60)), case.name
        kinds.add(type(case.request).__name__)
    assert kinds == {"TranslateRequest", "TranslateStreamRequest", "ScoreRequest"}


async def test_a_stream_that_is_refused_has_no_message_and_all_details(stub):
    messages = []

    async def read():
        async for message in stub.TranslateStream(pb.TranslateStreamRequest(text="你好", model="none"), timeout=30):
            messages.append(message)

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await read()
    failure = failure_of(raised.value)
    assert (failure.code, failure.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")
    assert messages == []


@pytest.mark.parametrize("kind", ["unary", "stream"])
async def test_a_caller_who_goes_frees_rows(stub, metrics, kind):
    await metrics.becomes(ACTIVE, lambda rows: rows == 0)
    before = metrics.value('grpc_server_handled_total{grpc_code="CANCELLED"')
    if kind == "unary":
        call = stub.Translate(LONG, timeout=60)
    else:
        long = pb.TranslateStreamRequest(text="我有一只猫。" * 1000, options=LONG.options)
        call = stub.TranslateStream(long, timeout=60)
        await call.read()
    await metrics.becomes(ACTIVE, lambda rows: rows > 0)
    call.cancel()
    await metrics.becomes(ACTIVE, lambda rows: rows == 0)
    assert metrics.value(WAITING) == 0
    await metrics.becomes('grpc_server_handled_total{grpc_code="CANCELLED"', lambda count: count == before + 1)


async def test_a_deadline_reaches_the_engine(stub, metrics):
    await metrics.becomes(ACTIVE, lambda rows: rows == 0)
    ended = 'grpc_server_handled_total{grpc_code="DEADLINE_EXCEEDED"'
    before = metrics.value(ended)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Translate(LONG, timeout=1.0)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await metrics.becomes(ended, lambda count: count == before + 1)
    await metrics.becomes(ACTIVE, lambda rows: rows == 0)
    assert metrics.value(WAITING) == 0


async def test_a_message_that_no_engine_receives_is_too_large(stub):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Translate(pb.TranslateRequest(texts=["a" * 3_000_000]), timeout=30)
    failure = failure_of(raised.value)
    assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    assert not failure.is_refusal


def test_http_is_answered_and_reaches_no_model(serving):
    with urlopen(f"{serving.http}/-/healthz", timeout=30) as answer:
        assert answer.status == 200
    for path in ("/", "/translane"):
        with pytest.raises(HTTPError) as raised:
            urlopen(serving.http + path, b"{}", timeout=30)
        assert raised.value.code == 404
        assert raised.value.read() == b"This application takes gRPC calls alone.\n"


def test_reflection_lists_the_service(serving):
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    with grpc.insecure_channel(serving.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        (answer,) = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    assert "translane.v1.TranslationService" in [each.name for each in answer.list_services_response.service]
