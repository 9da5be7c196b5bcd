"""The deployment before several others: where it sends a call, and what it does with lost engines."""

import asyncio

import grpc
import pytest

from helpers.refusals import refusal

pytest.importorskip("ray.serve", reason="Ray is not installed")

from ray.exceptions import ActorUnavailableError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.grpc_util import RayServegRPCContext

from fakes.grpc_context import GrpcContext
from translane.v1 import translation_pb2 as pb
from translane_server.bundle.manifest import Languages
from translane_server.core.errors import InvalidRequestError, ModelNotFoundError, SettingsError
from translane_server.ray_serve.application import build
from translane_server.ray_serve.calls import Answer, LostError
from translane_server.ray_serve.router import Router, group_of

LOST = ActorUnavailableError("the node is gone", None)
MESSAGE_BYTES = 1000


class Response:
    """A DeploymentResponse, or a DeploymentResponseGenerator."""

    def __init__(self, results):
        self.results = results
        self.cancelled = False

    def __await__(self):
        async def answer():
            (result,) = self.results
            if isinstance(result, Exception):
                raise result
            if result is None:
                await asyncio.Event().wait()
            return result

        return answer().__await__()

    async def __aiter__(self):
        for result in self.results:
            if isinstance(result, Exception):
                raise result
            yield result

    def cancel(self):
        self.cancelled = True


class Handle:
    """A deployment of one model. Each call has one of `results`, or answers with the deployment's name."""

    def __init__(self, name, pair, *results):
        self.name = name
        self.languages = {name: Languages(source=(pair[0],), target=(pair[1],))}
        self.results = list(results)
        self.calls = []
        self.responses = []

    def options(self, *, method_name, stream=False):
        return type("Method", (), {"remote": lambda _, *arguments: self._called(method_name, *arguments)})()

    def _called(self, method, *arguments):
        if method == "languages":
            return Response([self.languages])
        self.calls.append((method, *arguments))
        if self.results:
            result = self.results.pop(0)
        elif method == "ListModels":
            model = pb.Model(name=self.name, max_queue_size=9, max_beam_size=len(self.calls))
            limits = pb.Limits(max_request_texts=len(self.name))
            result = Answer(pb.ListModelsResponse(models=[model], limits=limits).SerializeToString())
        else:
            result = Answer(self.name.encode())
        self.responses.append(Response(result if isinstance(result, list) else [result]))
        return self.responses[-1]


def context():
    return RayServegRPCContext(GrpcContext(("x", "y")))


def message(**request):
    return pb.TranslateRequest(**request).SerializeToString()


ONE = message(texts=["a"], model="one")
STREAMED = pb.TranslateStreamRequest(text="a", model="one").SerializeToString()


def router_of(one, **changes):
    """A router before the deployment `one`, and another."""
    return Router({"a": one, "b": changes.get("other", Handle("other", ("en", "fr")))}, MESSAGE_BYTES)


async def test_the_models_of_all_deployments_are_listed():
    router = Router({"b": Handle("other", ("en", "fr")), "a": Handle("one", ("zh", "en"))}, MESSAGE_BYTES)
    listed = pb.ListModelsResponse.FromString((await router.ListModels(b"", context())).message)
    assert [model.name for model in listed.models] == ["one", "other"]
    assert (listed.limits.max_request_texts, listed.limits.max_beam_size) == (3, 1)


@pytest.mark.parametrize(
    ("sent", "results", "code", "details"),
    [
        (message(model="none"), [], grpc.StatusCode.NOT_FOUND, "model: there is no model"),
        (message(model="m" * 101), [], grpc.StatusCode.INVALID_ARGUMENT, "model: "),
        (message(texts=["x" * 1000]), [], grpc.StatusCode.RESOURCE_EXHAUSTED, "the message has 10"),
        (ONE, [BackPressureError(1, 1)], grpc.StatusCode.RESOURCE_EXHAUSTED, "as many calls wait as Ray Serve takes"),
        (ONE, [DeploymentUnavailableError("a")], grpc.StatusCode.UNAVAILABLE, "no engine takes calls; try again"),
        (ONE, [KeyError("secret")], grpc.StatusCode.INTERNAL, "internal error; the server's log has the details"),
    ],
)
async def test_what_is_refused_by_the_router_by_serve_and_for_a_bug(sent, results, code, details, caplog):
    called = context()
    await router_of(Handle("one", ("zh", "en"), *results)).Translate(sent, called)
    assert called.code() is code
    assert called.details().startswith(details)
    assert ("Translate failed" in caplog.text) is (code is grpc.StatusCode.INTERNAL)


async def test_a_message_that_is_none_is_left_to_a_deployment():
    assert await router_of(Handle("one", ("zh", "en"))).Translate(b"\xff\xff", context()) == Answer(b"one")


async def test_a_lost_engine_is_left_to_the_proxy():
    """Not by an error of Ray's own, by which Serve would lose the router."""
    router = router_of(Handle("one", ("zh", "en"), LOST, [Answer(b"1"), LOST], LOST))
    with pytest.raises(LostError):
        await router.Translate(ONE, context())
    answers = router.TranslateStream(STREAMED, context())
    assert await anext(answers) == Answer(b"1")
    with pytest.raises(LostError):
        await anext(answers)
    with pytest.raises(LostError):
        await router.ListModels(b"", context())


async def test_a_caller_who_goes_cancels_the_call_of_the_engine():
    one = Handle("one", ("zh", "en"), None, [Answer(b"1"), Answer(b"2")])
    router = router_of(one)
    asking = asyncio.create_task(router.Translate(ONE, context()))
    while not one.calls:  # noqa: ASYNC110 a handle has no event
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert one.responses[-1].cancelled
    answers = router.TranslateStream(STREAMED, context())
    assert await anext(answers) == Answer(b"1")
    await answers.aclose()
    assert one.responses[-1].cancelled


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "args has groups"),
        ({"groups": {}}, "args has groups"),
        ({"groups": {"a": {"model": ["/m"]}}, "more": 1}, "args has groups"),
        (
            {"groups": {"a": {"model": ["/m"], "max_batch_size": 0}}},
            "groups.a: max_batch_size: input should be greater than or equal to 1",
        ),
        ({"groups": {"a": {"model": ["/m"], "row": 1}}}, "groups.a: row: extra inputs are not permitted"),
        ({"groups": {"a": {"model": ["/m"], "http_port": 1}}}, "groups.a: --http-port has no meaning under Ray Serve"),
        ({"groups": {"a": {}}}, "groups.a: MODEL is required"),
        ({"groups": {"a": {"model": ["https://x/y?sig=secret"]}}}, "groups.a: MODEL https://x/y?…: Ray Serve shows"),
        (
            {"groups": {"router": {"model": ["/m"]}, "a": {"model": ["/m"]}}},
            "groups.router: the deployment before the others has this name",
        ),
    ],
)
def test_an_application_that_cannot_be_built(args, problem):
    assert refusal(SettingsError, build, args).startswith(problem)


def model(source, target):
    return Languages(source=tuple(source.split()), target=tuple(target.split()))


GROUPS = {
    "east": {"zh-en": model("zh", "en"), "ja-en": model("ja", "en")},
    "west": {"de-en": model("de", "en"), "en-fr": model("en", "fr")},
    "south": {"fr-de": model("fr", "de"), "fr-de-2": model("fr", "de")},
    "other": {"de-en-large": model("de", "en"), "any": model("und", "nl")},
}


@pytest.mark.parametrize(
    ("request_of", "group"),
    [
        (("zh-en", "", ""), "east"),
        (("any", "xx", "yy"), "other"),  # the deployment itself says what is wrong with the languages
        (("", "zh", "en"), "east"),
        (("", "zh-TW", "en"), "east"),
        (("", "en", "fr"), "west"),
        (("", "tr", "nl"), "other"),
        (("", "de", "fr"), "west"),  # through English, with two models of one deployment
        (("", "auto", "fr"), "west"),
        (("", "fr", "de"), "south"),  # several models of one deployment are its own affair
    ],
)
def test_the_one_deployment(request_of, group):
    assert group_of(GROUPS, *request_of) == group


@pytest.mark.parametrize(
    ("request_of", "error", "message"),
    [
        (("de-fr", "", ""), ModelNotFoundError, "model: there is no model 'de-fr'; this server has zh-en, ja-en"),
        (("", "zh", "fr"), ModelNotFoundError, "model: no model translates 'zh' to 'fr'"),  # two of two deployments
        (("", "auto", "tr"), ModelNotFoundError, "target_language: no model translates to 'tr'"),
        (("", "de", "en"), InvalidRequestError, "model: is needed, several models fit: "),
        (("", "auto", "en"), InvalidRequestError, "model: is needed, several models fit: "),
    ],
)
def test_no_deployment_or_several(request_of, error, message):
    assert refusal(error, group_of, GROUPS, *request_of).startswith(message)
