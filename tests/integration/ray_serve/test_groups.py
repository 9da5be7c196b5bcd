"""Models with deployments of their own, behind a router that callers with keys reach."""

import grpc
import pytest

pytest.importorskip("ray.serve", reason="the extra ray is not installed")

from helpers.key_files import holder, key_file
from helpers.reliability.failures import failure_of
from helpers.reliability.server_process import BUNDLE
from translane import Client, InvalidArgument, NotFound
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_server.access.keys import make_token

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree"),
]

TEXT = "我有一只猫"


@pytest.fixture(scope="module")
def token():
    return make_token()


@pytest.fixture(scope="module")
def address(ray_cluster, token, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    keys = key_file(folder, me=holder(token))
    engine = ["--replicas", "1", "--threads", "1", "--metrics-port", "0", "--keys-file", str(keys)]
    models = [f"a={BUNDLE}", f"b={BUNDLE}", "--separate-models"]
    ray_cluster.deploy([*models, *engine])
    for deployment, replicas in (("a", 1), ("b", 1), ("router", 2), ("", 4)):
        ray_cluster.settled(replicas, deployment)
    return ray_cluster.address


@pytest.fixture
def client(address, token):
    with Client(address, token=token) as client:
        yield client


def test_each_deployment_answers_for_its_model(client):
    assert [model.name for model in client.models()] == ["a", "b"]
    translations = [client.translate(TEXT, model=name) for name in ("a", "b")]
    assert translations[0].text == translations[1].text
    assert "".join(client.translate_stream(TEXT, model="b")) == translations[0].text
    (score,) = client.score([(TEXT, translations[0].text)], model="a")
    assert score.total_log_prob < 0


def test_what_the_router_says(client):
    with pytest.raises(InvalidArgument, match="is needed, several models fit: a, b"):
        client.translate(TEXT)
    with pytest.raises(NotFound, match="there is no model 'c'; this server has a, b"):
        client.translate(TEXT, model="c")
    with pytest.raises(NotFound, match="no model translates 'de' to 'fr'"):
        list(client.translate_stream(TEXT, source_language="de", target_language="fr"))


def test_what_a_deployment_says_keeps_its_details(client):
    with pytest.raises(InvalidArgument) as wrong:
        client.translate([TEXT, TEXT], model="a", beam_size=2000)
    assert [violation.field for violation in wrong.value.violations] == ["options.beam_size"]


@pytest.mark.parametrize("method", ["ListModels", "Translate", "TranslateStream"])
def test_callers_without_a_key_are_refused(address, method):
    requests = {
        "ListModels": pb.ListModelsRequest(),
        "Translate": pb.TranslateRequest(texts=[TEXT], model="a"),
        "TranslateStream": pb.TranslateStreamRequest(text=TEXT, model="a"),
    }
    with grpc.insecure_channel(address) as channel:
        call = getattr(translation_pb2_grpc.TranslationServiceStub(channel), method)
        with pytest.raises(grpc.RpcError) as raised:
            list(call(requests[method], timeout=30))
    failure = failure_of(raised.value)
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAUTHENTICATED, "MISSING_KEY")
