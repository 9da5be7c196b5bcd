"""What Ray Serve answers with models that have deployments of their own, behind a router that asks for keys.

What engines do, `integration/targets` and `reliability` show.
"""

import hashlib
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from helpers.failures import failure_of
from helpers.file_server import FileServer
from helpers.key_files import bearer, holder, key_file
from helpers.server_process import BUNDLE
from translane import Client
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_server.access.keys import make_token

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(580),  # Ray takes minutes to start on a busy machine
]

TEXT = "我有一只猫"
ENGINE = ("--replicas=1", "--threads=1", "--metrics-port=0")
CALLS = {
    "ListModels": pb.ListModelsRequest(),
    "Translate": pb.TranslateRequest(texts=[TEXT], model="a"),
    "TranslateStream": pb.TranslateStreamRequest(text=TEXT, model="a"),
}


@pytest.fixture(scope="module")
def token():
    return make_token()


@pytest.fixture(scope="module")
def serving(ray_cluster, token, tmp_path_factory):
    keys = key_file(tmp_path_factory.mktemp("ray"), me=holder(token))
    ray_cluster.deploy([f"a={BUNDLE}", f"b={BUNDLE}", "--separate-models", *ENGINE, f"--keys-file={keys}"])
    for deployment, replicas in (("a", 1), ("b", 1), ("router", 2), ("", 4)):
        ray_cluster.settled(replicas, deployment)
    return ray_cluster


@pytest.fixture
def client(serving, token):
    with Client(serving.address, token=token) as client:
        yield client


@pytest.fixture
def channel(serving):
    with grpc.insecure_channel(serving.address, options=[("grpc.enable_retries", 0)]) as channel:
        yield channel


def test_each_deployment_answers_for_its_model(client):
    assert [model.name for model in client.models()] == ["a", "b"]
    translations = [client.translate(TEXT, model=name) for name in ("a", "b")]
    assert translations[0].text == translations[1].text
    assert "".join(client.translate_stream(TEXT, model="b")) == translations[0].text
    (score,) = client.score([(TEXT, translations[0].text)], model="a")
    assert score.total_log_prob < 0


@pytest.mark.parametrize("method", CALLS)
def test_callers_without_a_key_are_refused(channel, method):
    call = getattr(translation_pb2_grpc.TranslationServiceStub(channel), method)
    for metadata, reason in (([], "MISSING_KEY"), (bearer(make_token()), "UNKNOWN_KEY")):
        with pytest.raises(grpc.RpcError) as raised:
            list(call(CALLS[method], timeout=30, metadata=metadata))
        failure = failure_of(raised.value)
        assert (failure.code, failure.reason) == (grpc.StatusCode.UNAUTHENTICATED, reason)


def test_a_message_that_no_engine_receives_is_too_large(channel):
    with pytest.raises(grpc.RpcError) as raised:
        translation_pb2_grpc.TranslationServiceStub(channel).Translate(
            pb.TranslateRequest(texts=["a" * 3_000_000]), timeout=30
        )
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


def test_reflection_lists_the_service(channel, token):
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    (answer,) = stub.ServerReflectionInfo(iter([request]), metadata=bearer(token))
    assert "translane.v1.TranslationService" in [each.name for each in answer.list_services_response.service]


def test_engines_of_a_machine_download_a_model_once(ray_cluster, tmp_path):
    """It deploys an application of its own, so it is the last test here."""
    digest = hashlib.sha256((BUNDLE / "manifest.json").read_bytes()).hexdigest()
    with FileServer() as store:
        store.put(BUNDLE, "models/8")
        model = [f"far={store.url}/models/8@sha256:{digest}", f"--model-cache={tmp_path / 'cache'}"]
        ray_cluster.deploy([*model, "--serve-replicas=2", *ENGINE])
        ray_cluster.settled(2)
        with Client(ray_cluster.address) as client:
            assert [each.name for each in client.models()] == ["far"]
            texts = {client.translate(TEXT).text for _ in range(8)}
        assert len(texts) == 1
        assert all(store.times(path) == 1 for path in store.files if not path.endswith("manifest.json"))
