"""What Ray Serve itself answers. What its engines do, `integration/targets` and `reliability` show."""

from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest

pytest.importorskip("ray.serve", reason="the extra ray is not installed")

from helpers.reliability.failures import failure_of
from helpers.reliability.server_process import BUNDLE
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree"),
]


@pytest.fixture(scope="module")
def serving(ray_cluster):
    ray_cluster.deploy([str(BUNDLE), "--replicas", "1", "--threads", "1", "--metrics-port", "0"])
    ray_cluster.settled(1)
    return ray_cluster


@pytest.fixture
async def stub(serving):
    async with grpc.aio.insecure_channel(serving.address, options=[("grpc.enable_retries", 0)]) as channel:
        yield translation_pb2_grpc.TranslationServiceStub(channel)


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
