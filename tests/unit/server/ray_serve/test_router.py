"""The deployment before several others: where it sends a call, and what it does with lost engines."""

import asyncio
from typing import Any

import grpc
import pytest

pytest.importorskip("ray.serve", reason="Ray is not installed")

from ray.exceptions import ActorUnavailableError
from ray.serve.exceptions import BackPressureError

from translane.v1 import translation_pb2 as pb
from translane_server.bundle.manifest import Languages
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.ray_serve.application import build
from translane_server.ray_serve.calls import ATTEMPTS, Answer, Call
from translane_server.ray_serve.router import Router
from translane_server.ray_serve.rpcs import MODELS, SCORE, STREAM, TRANSLATE

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
        return type("Method", (), {"remote": lambda _, *arguments: self._called(method_name, stream, *arguments)})()

    def _called(self, method, stream, *arguments):
        if method == "languages":
            return Response([self.languages])
        self.calls.append((method, *arguments))
        if self.results:
            result = self.results.pop(0)
        elif arguments[0] == MODELS:
            model = pb.Model(name=self.name, max_queue_size=9, max_beam_size=len(self.calls))
            limits = pb.Limits(max_request_texts=len(self.name))
            result = Answer(pb.ListModelsResponse(models=[model], limits=limits).SerializeToString())
        else:
            result = Answer(self.name.encode())
        self.responses.append(Response(result if isinstance(result, list) else [result]))
        return self.responses[-1]


def call(request):
    return Call(request.SerializeToString(), (("x", "y"),), "ipv4:192.0.2.7:1", 3.0)


TEXT = call(pb.TranslateRequest(texts=["a"], model="one"))


async def test_the_model_or_the_languages_decide():
    one, two = Handle("one", ("zh", "en")), Handle("other", ("en", "fr"))
    router = Router({"a": one, "b": two}, MESSAGE_BYTES)
    assert await router.answer_unary(TRANSLATE, TEXT) == Answer(b"one")
    assert one.calls == [("answer_unary", TRANSLATE, TEXT)]
    languages: Any = {"source_language": "en", "target_language": "fr"}
    scored = call(pb.ScoreRequest(inputs=[pb.ScoreInput(source="a", target="b")], **languages))
    assert await router.answer_unary(SCORE, scored) == Answer(b"other")
    streamed = call(pb.TranslateStreamRequest(text="a", **languages))
    two.results = [[Answer(b"1"), Answer(b"2")]]
    assert [each async for each in router.answer_stream(STREAM, streamed)] == [Answer(b"1"), Answer(b"2")]
    assert not two.responses[-1].cancelled


async def test_the_models_of_all_deployments_are_listed():
    router = Router({"b": Handle("other", ("en", "fr")), "a": Handle("one", ("zh", "en"))}, MESSAGE_BYTES)
    listed = pb.ListModelsResponse.FromString((await router.answer_unary(MODELS, call(pb.ListModelsRequest()))).message)
    assert [model.name for model in listed.models] == ["one", "other"]
    assert (listed.limits.max_request_texts, listed.limits.max_beam_size) == (3, 1)


async def test_one_deployment_that_refuses_to_list_is_the_answer():
    refused = Answer.failed(InvalidRequestError(FieldViolation("x", "is wrong")))
    router = Router({"a": Handle("one", ("zh", "en")), "b": Handle("other", ("en", "fr"), refused)}, MESSAGE_BYTES)
    assert await router.answer_unary(MODELS, call(pb.ListModelsRequest())) == refused


@pytest.mark.parametrize(
    ("request_of", "code", "details"),
    [
        (pb.TranslateRequest(model="none"), grpc.StatusCode.NOT_FOUND, "model: there is no model"),
        (pb.TranslateRequest(model="m" * 101), grpc.StatusCode.INVALID_ARGUMENT, "model: "),
        (pb.TranslateRequest(texts=["x" * 1000]), grpc.StatusCode.RESOURCE_EXHAUSTED, "the message has 10"),
    ],
)
async def test_what_the_router_refuses(request_of, code, details):
    router = Router({"a": Handle("one", ("zh", "en")), "b": Handle("other", ("en", "fr"))}, MESSAGE_BYTES)
    answer = await router.answer_unary(TRANSLATE, call(request_of))
    assert answer.code is code
    assert answer.details.startswith(details)
    (streamed,) = [each async for each in router.answer_stream(STREAM, call(request_of))]
    assert streamed.code is code or code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_message_that_is_none_is_left_to_a_deployment():
    one = Handle("one", ("zh", "en"))
    router = Router({"a": one, "b": Handle("other", ("en", "fr"))}, MESSAGE_BYTES)
    broken = Call(b"\xff\xff", (), "", None)
    assert await router.answer_unary(TRANSLATE, broken) == Answer(b"one")


async def test_a_lost_engine_is_replaced_by_another():
    one = Handle("one", ("zh", "en"), *[LOST] * (ATTEMPTS - 1))
    router = Router({"a": one, "b": Handle("other", ("en", "fr"))}, MESSAGE_BYTES)
    assert await router.answer_unary(TRANSLATE, TEXT) == Answer(b"one")
    assert len(one.calls) == ATTEMPTS
    one.results = [[LOST], [Answer(b"1"), Answer(b"2")]]
    streamed = call(pb.TranslateStreamRequest(text="a", model="one"))
    assert [each async for each in router.answer_stream(STREAM, streamed)] == [Answer(b"1"), Answer(b"2")]


async def test_what_cannot_be_repeated_is_refused():
    full = BackPressureError(num_queued_requests=1, max_queued_requests=1)
    one = Handle("one", ("zh", "en"), *[LOST] * ATTEMPTS, full, [Answer(b"1"), LOST])
    router = Router({"a": one, "b": Handle("other", ("en", "fr"))}, MESSAGE_BYTES)
    assert (await router.answer_unary(TRANSLATE, TEXT)).code is grpc.StatusCode.UNAVAILABLE
    assert (await router.answer_unary(TRANSLATE, TEXT)).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    streamed = call(pb.TranslateStreamRequest(text="a", model="one"))
    begun, lost = [each async for each in router.answer_stream(STREAM, streamed)]
    assert (begun, lost.code) == (Answer(b"1"), grpc.StatusCode.UNAVAILABLE)


async def test_a_caller_who_goes_cancels_the_call_of_the_engine():
    one = Handle("one", ("zh", "en"), None, [Answer(b"1"), Answer(b"2")])
    router = Router({"a": one, "b": Handle("other", ("en", "fr"))}, MESSAGE_BYTES)
    asking = asyncio.create_task(router.answer_unary(TRANSLATE, TEXT))
    while not one.calls:  # noqa: ASYNC110 a handle has no event
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert one.responses[-1].cancelled
    answers = router.answer_stream(STREAM, call(pb.TranslateStreamRequest(text="a", model="one")))
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
        (
            {"groups": {"router": {"model": ["/m"]}, "a": {"model": ["/m"]}}},
            "groups.router: the deployment before the others has this name",
        ),
    ],
)
def test_an_application_that_cannot_be_built(args, problem):
    from translane_server.core.errors import SettingsError

    with pytest.raises(SettingsError) as raised:
        build(args)
    assert str(raised.value).startswith(problem)


def test_one_group_is_the_ingress_itself_and_several_have_a_router():
    assert deployment_of(build({"groups": {"translane": {"model": ["/m"]}}})).name == "translane"
    assert deployment_of(build({"groups": {"a": {"model": ["/m"]}, "b": {"model": ["/n"]}}})).name == "router"


def deployment_of(application):
    return application._bound_deployment
