"""A real server on a real port, over a backend that is only arithmetic."""

import asyncio
import socket
import threading
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from fakes.serving import FakeModel, FakeTokenizer, make_manifest, serving
from helpers.failures import failed
from helpers.http_calls import request as http_request
from helpers.http_calls import until
from translane.results import ModelState
from translane.v1 import translation_pb2 as pb
from translane_server.app import server as app_server
from translane_server.core.errors import StartupError
from translane_server.workers import worker

SERVICE = "translane.v1.TranslationService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def request(*texts, **fields):
    return pb.TranslateRequest(texts=texts, **fields)


async def translate(running, *texts, timeout=10, **fields):  # noqa: ASYNC109 it is the call's deadline
    response = await running.stub.Translate(request(*texts, **fields), timeout=timeout)
    return [translation.hypotheses[0].text for translation in response.translations]


async def health(running):
    stub = health_pb2_grpc.HealthStub(running.channel)
    answers = [await stub.Check(health_pb2.HealthCheckRequest(service=name)) for name in ("", SERVICE)]
    assert answers[0].status == answers[1].status
    return answers[0].status


async def is_alive(running):
    check = health_pb2.HealthCheckRequest(service="alive")
    return (await health_pb2_grpc.HealthStub(running.channel).Check(check)).status == SERVING


async def scrape(running):
    return (await http_request(running.server.metrics_port, "GET", "/metrics")).body.decode()


async def handled(running, method, code, at_least=1):
    """How often `method` was answered with `code`; the count follows the answer by a moment."""
    labels = f'grpc_code="{code}",grpc_method="{method}"'
    counts = [0.0]

    async def is_counted():
        lines = [line for line in (await scrape(running)).splitlines() if line.startswith("grpc_server_handled_total")]
        counts.extend(float(line.split()[-1]) for line in lines if labels in line)
        return counts[-1] >= at_least

    await until(is_counted)
    return counts[-1]


async def test_health_and_refusals_while_starting():
    async with serving(opened=False) as running:
        assert await health(running) == NOT_SERVING
        assert [each.name for each in (await running.stub.ListModels(pb.ListModelsRequest())).models] == ["fake"]
        refused = await failed(running.stub.Translate(request("x")))
        assert refused.name == "UNAVAILABLE(UNAVAILABLE)"
        assert refused.retry_after
        await running.open()
        assert await health(running) == SERVING
        assert await translate(running, "x") == ["x"]


async def test_an_unknown_service_has_no_health():
    async with serving() as running:
        check = health_pb2_grpc.HealthStub(running.channel).Check(health_pb2.HealthCheckRequest(service="x"))
        assert (await failed(check)).code is grpc.StatusCode.NOT_FOUND


async def test_health_tells_its_watchers():
    async with serving(opened=False, request_timeout=0.1) as running:
        watch = health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == NOT_SERVING
        await asyncio.sleep(0.3)  # a watch has no longest time
        await running.open()
        assert (await watch.read()).status == SERVING
        gone = health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await gone.read()).status == SERVING
        gone.cancel()
        await until(lambda: len(running.server._health._watchers) == 1)
        stopping = asyncio.create_task(running.server.stop(grace=1))
        assert (await watch.read()).status == NOT_SERVING
        assert await stopping


async def test_a_model_whose_replicas_do_not_stay_alive_is_seen_and_comes_back(monkeypatch):
    monkeypatch.setattr(worker, "_MOST_LOSSES", 1)
    monkeypatch.setattr(worker, "_FIRST_DELAY", 1.0)

    async def loaded():
        return 'translane_model_loaded{model="fake"} 1.0' in (await scrape(running)).splitlines()

    async with serving() as running:
        (model,) = running.server.models.models.values()
        assert await loaded()
        running.backend.fail_at_step = 0
        codes = []
        for text in "xyz":
            refused = await failed(running.stub.Translate(request(text)))
            codes.append(refused.name)
        assert codes == ["INTERNAL(POISONED)", *["UNAVAILABLE(UNAVAILABLE)"] * 2]
        assert refused.retry_after
        assert "bus" not in refused.message
        assert model.state == ModelState.FAILED
        assert not await loaded()
        assert await health(running) == NOT_SERVING
        assert await is_alive(running)
        running.backend.fail_at_step = None
        await until(loaded)
        assert await translate(running, "abc")
        assert await health(running) == SERVING
        assert await loaded()


async def reflected(running, version="v1", **asked):
    method = running.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    (answer,) = [each async for each in method(iter([reflection_pb2.ServerReflectionRequest(**asked)]))]
    return answer


async def services(running, version="v1"):
    answer = await reflected(running, version, list_services="")
    return [service.name for service in answer.list_services_response.service]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection(version):
    async with serving() as running:
        names = await services(running, version)
        both = {"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
        assert set(names) == {SERVICE, "grpc.health.v1.Health"} | both
        for name in names:
            answer = await reflected(running, version, file_containing_symbol=name)
            files = [
                FileDescriptorProto.FromString(each) for each in answer.file_descriptor_response.file_descriptor_proto
            ]
            assert name in {f"{file.package}.{service.name}" for file in files for service in file.service}


async def test_reflection_can_be_off():
    async with serving(reflection=False) as running:
        assert (await failed(services(running))).code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_bug_says_nothing_to_the_caller(caplog):
    async with serving() as running:
        running.model.translator._reader.read = None  # type: ignore[assignment]
        refused = await failed(running.stub.Translate(request("secret")))
        assert refused.name == "INTERNAL(INTERNAL)"
        assert "secret" not in refused.message
        assert "Traceback" in caplog.text
        assert "secret" not in caplog.text
        assert await handled(running, "Translate", "INTERNAL") == 1


async def test_a_call_that_finds_no_memory_may_be_made_again():
    async with serving() as running:
        running.model.translator._reader.read = Mock(side_effect=MemoryError)
        assert (await failed(running.stub.Translate(request("a")))).name == "UNAVAILABLE(UNAVAILABLE)"


async def test_a_full_queue_refuses_before_the_work_of_making_tokens(monkeypatch):
    async with serving(rows=1, max_request_texts=2, max_queue_size=2) as running:
        running.backend.hold()
        first = asyncio.create_task(translate(running, "a"))
        await until(lambda: running.dispatcher.active_rows == 1)
        second = asyncio.create_task(translate(running, "b", "c"))
        await until(lambda: running.dispatcher.waiting == 2)
        with monkeypatch.context() as changed:
            changed.setattr(FakeTokenizer, "encode", None)
            changed.setattr(FakeTokenizer, "encode_target", None)
            scored = pb.ScoreRequest(inputs=[pb.ScoreInput(source="x", target="x")])
            for call in (running.stub.Translate(request("d")), running.stub.Score(scored)):
                refused = await failed(call)
                assert refused.name == "RESOURCE_EXHAUSTED(QUEUE_FULL)"
                assert refused.retry_after
        text = await scrape(running)
        assert 'translane_rejected_total{reason="QUEUE_FULL"} 2.0' in text
        assert 'translane_sentences_waiting{model="fake"} 2.0' in text
        assert 'translane_rows{model="fake",state="active"} 1.0' in text
        running.backend.release()
        assert [*await first, *await second] == ["a", "b", "c"]


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE_EXCEEDED"])
async def test_an_abandoned_call_frees_its_rows(code):
    async with serving(rows=2) as running:
        running.backend.hold()
        timeout = 0.2 if code == "DEADLINE_EXCEEDED" else 60
        call = running.stub.Translate(request("abandoned", "too"), timeout=timeout)
        ended = asyncio.create_task(call.code())
        await until(lambda: running.dispatcher.active_rows == 2)
        if code == "CANCELLED":
            call.cancel()
        assert (await ended).name == code
        assert await handled(running, "Translate", code) == 1
        running.backend.release(steps=1)
        await until(lambda: running.dispatcher.active_rows == 0)
        running.backend.release()
        assert await translate(running, "next") == ["next"]


async def test_unknown_methods_share_a_label():
    async with serving() as running:
        for name in ("/translane.v1.TranslationService/Nothing", "/x.Y/Z", "/odd"):
            unknown = running.channel.unary_unary(name, None, None)(b"")
            assert (await failed(unknown)).code is grpc.StatusCode.UNIMPLEMENTED
        assert await handled(running, "unknown", "UNIMPLEMENTED", at_least=3) == 3
        assert "Nothing" not in await scrape(running)


async def test_metrics():
    async with serving() as running:
        await translate(running, "abc", "de", "")
        assert await handled(running, "Translate", "OK") == 1
        text = await scrape(running)
        for line in (
            'grpc_server_started_total{grpc_method="Translate",grpc_service="translane.v1.TranslationService",'
            'grpc_type="unary"} 1.0',
            'translane_request_duration_seconds_count{model="fake",result="ok"} 1.0',
            'translane_source_tokens_total{model="fake"} 7.0',
            'translane_generated_tokens_total{model="fake"} 7.0',
            'translane_queue_duration_seconds_count{model="fake"} 2.0',
            'translane_time_to_first_token_seconds_count{model="fake"} 2.0',
        ):
            assert line in text.splitlines()


async def test_draining_loses_nothing():
    async with serving(rows=2) as running:
        running.backend.hold()
        accepted = [asyncio.create_task(translate(running, f"text {n}")) for n in range(10)]
        await until(lambda: running.server._service._running == 10)
        stopping = asyncio.create_task(running.server.stop(grace=10))
        await asyncio.sleep(0.05)
        assert await health(running) == NOT_SERVING
        assert await is_alive(running)
        refused = await failed(running.stub.Translate(request("late")))
        assert refused.name == "UNAVAILABLE(UNAVAILABLE)"
        assert refused.retry_after
        running.backend.release()
        assert await asyncio.gather(*accepted) == [[f"text {n}"] for n in range(10)]
        assert await stopping
        assert running.backend.closed
        await failed(translate(running, "gone"))


async def test_a_call_after_the_last_translation_is_told_that_the_server_ends(monkeypatch):
    monkeypatch.setattr(app_server, "_LAST_CALLS_TIME", 60)
    async with serving() as running:
        over = asyncio.Event()
        stopping = asyncio.create_task(running.server.stop(grace=10, hurry=over))
        await asyncio.sleep(0.1)
        refused = await failed(running.stub.Translate(request("late")))
        assert refused.name == "UNAVAILABLE(UNAVAILABLE)"
        over.set()
        assert await stopping


@pytest.mark.parametrize("hurried", [False, True])
async def test_what_the_grace_period_leaves_is_answered(hurried):
    async with serving(rows=1) as running:
        running.backend.hold()
        call = asyncio.create_task(failed(running.stub.Translate(request("slow"))))
        await until(lambda: running.dispatcher.active_rows == 1)
        hurry = asyncio.Event()
        stopping = asyncio.create_task(running.server.stop(grace=60 if hurried else 0.05, hurry=hurry))
        await asyncio.sleep(0.1)
        hurry.set()
        refused = await asyncio.wait_for(call, 30)
        running.backend.release()
        assert refused.name == "UNAVAILABLE(UNAVAILABLE)"
        assert refused.retry_after
        assert not await stopping


@pytest.mark.parametrize("setting", ["port", "metrics_port", "http_port", "health_port", "admin_port"])
async def test_a_port_that_another_program_would_share_is_not_taken(setting):
    """The kernel would give each of the two some of the connections."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        ports: dict[str, Any] = {setting: other.getsockname()[1]}
        with pytest.raises(StartupError, match=rf"^cannot listen on \S+:{ports[setting]}: Address already in use$"):
            async with serving(**ports):
                pass


@pytest.mark.parametrize("log_texts", [False, True])
@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
async def test_a_line_for_each_call_has_texts_at_debug_alone(caplog, level, log_texts):
    caplog.set_level(level, "translane_server")
    asked = request("secret words", "secret")
    async with serving(log_texts=log_texts) as running:
        await running.stub.Translate(asked)
        await handled(running, "Translate", "OK")
        await failed(running.stub.Translate(request("secret", source_language="xx")))
        await handled(running, "Translate", "INVALID_ARGUMENT")
        await running.stub.ListModels(pb.ListModelsRequest())
        await handled(running, "ListModels", "OK")
        if level == "INFO":
            await health_pb2_grpc.HealthStub(running.channel).Check(health_pb2.HealthCheckRequest())
    lines = [record.translane_data for record in caplog.records if record.getMessage() == "request"]
    assert all(line.pop("milliseconds") > 0 for line in lines)
    expected = {
        "method": "Translate",
        "code": "OK",
        "caller": "127.0.0.1",
        "model": "fake",
        "sentences": 2,
        "bytes": asked.ByteSize(),
    }
    if level == "DEBUG":
        assert lines[0].items() >= {**expected, "texts": 2, "source_tokens": 20, "generated_tokens": 20}.items()
    else:
        assert lines[0] == expected
    assert [(line["method"], line["code"]) for line in lines[1:]] == [
        ("Translate", "INVALID_ARGUMENT"),
        ("ListModels", "OK"),
    ]
    assert ("secret" in str([vars(record) for record in caplog.records])) == (log_texts and level == "DEBUG")


# Long requests are read on threads of their own.


@pytest.mark.parametrize(("characters", "thread"), [(300, "MainThread"), (1200, "texts")])
async def test_long_requests_are_prepared_away_from_the_event_loop(characters, thread):
    """And answered there; short ones are not, as there and back takes longer than their tokens."""
    seen = set()

    class SeenTokenizer(FakeTokenizer):
        def encode(self, texts):
            seen.add(threading.current_thread().name)
            return super().encode(texts)

        def decode(self, ids, unknowns=()):
            seen.add(threading.current_thread().name)
            return super().decode(ids, unknowns)

    texts = ["x" * 20] * (characters // 20)
    async with serving(model=FakeModel(make_manifest(), SeenTokenizer()), max_request_texts=64, rows=64) as running:
        response = await running.stub.Translate(pb.TranslateRequest(texts=texts))
    assert [each.hypotheses[0].text for each in response.translations] == texts
    assert seen == {thread}


async def test_a_caller_who_goes_ends_the_reading_of_the_request():
    """The only thread then reads the request of another caller."""
    started, ended = threading.Event(), threading.Event()

    class EndlessTokenizer(FakeTokenizer):
        def encode(self, texts):
            if "endless" in texts[0]:
                started.set()
                ended.wait(5)
            return super().encode(texts)

    options = pb.DecodingOptions(split_sentences=True)
    async with serving(model=FakeModel(make_manifest(), EndlessTokenizer())) as running:
        endless = pb.TranslateRequest(texts=["endless " * 240, "x" * 30], options=options)
        call = running.stub.Translate(endless)
        await asyncio.to_thread(started.wait, 5)
        call.cancel()
        await until(lambda: running.server._service._running == 0, 1)
        ended.set()
        text = "x" * 20 + "\n" * 1100
        response = await running.stub.Translate(pb.TranslateRequest(texts=[text], options=options))
        assert response.translations[0].hypotheses[0].text == text
