"""The HTTP port answers what the gRPC port answers, in JSON, to curl and to Connect's clients."""

import asyncio
import base64
import json
import random
import shutil
import struct
from pathlib import Path

import grpc
import pytest
from connectrpc.client import ConnectClient
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from google.protobuf import json_format
from google.rpc import status_pb2
from grpc_status import rpc_status
from pydantic import ValidationError

from fakes.serving import make_settings, serving
from helpers.http_calls import SERVICE, call, request, until
from helpers.real_server import serving_bundle
from translane.v1 import translation_pb2 as pb
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import StartupError

ROOT = Path(__file__).parents[3]
STREAM = {"content-type": "application/connect+json"}
TEXTS = [
    "",
    "你好",
    "我有一只猫。",
    "谢谢！再见。",
    "他 <b>好</b>",
    "⁇",
    "x" * 40,
    "👩‍👧 猫",
    "\u202e右",
    "我在 https://a.b 等你",
]


def random_request(numbers):
    """A request that is often, but not always, a right one."""
    options = {
        "beam_size": numbers.choice([1, 2, 3, 0, 5000]),
        "seed": numbers.choice([0, 7, 2**64 - 1]),
        "top_k": numbers.choice([1, 5]),
        "num_hypotheses": numbers.choice([1, 2]),
        "max_length": numbers.choice([1, 5, 12, -1]),
        "return_tokens": numbers.random() < 0.5,
        "return_token_scores": numbers.random() < 0.5,
        "return_alignment": numbers.random() < 0.5,
        "length_penalty": numbers.choice([0.1, 1, 1e30, -3.5]),
        "repetition_penalty": numbers.choice([1.1, 2.5]),
        "suppressed_phrases": ["l"],
        "split_sentences": numbers.random() < 0.5,
        "target_prefix": numbers.choice(["", "ab"]),
        "preserve": ["[0-9]+"],
    }
    chosen = dict(numbers.sample(sorted(options.items()), numbers.randrange(5)))
    return pb.TranslateRequest(
        texts=numbers.choices(TEXTS, k=numbers.randrange(1, 5)),
        model=numbers.choice(["", "", "", "zh-en", "other"]),
        source_language=numbers.choice(["", "zh", "xx"]) if numbers.random() < 0.3 else "",
        options=pb.DecodingOptions(**chosen) if chosen else None,
        format=numbers.choice([0, 0, 1, 2]),
    )


async def both_answers(running, message, snake):
    port = running.server.http_port
    return await asyncio.gather(
        grpc_answer(running.stub.Translate, message),
        http_answer(port, "Translate", message, pb.TranslateResponse, snake=snake),
    )


def without_times(message):
    if "timing" in message.DESCRIPTOR.fields_by_name:
        message.ClearField("timing")
    return message


def status_of(error):
    """The google.rpc.Status of a Connect error's JSON."""
    status = {"message": error["message"], "details": []}
    for detail in error.get("details", ()):
        value = base64.b64decode(detail["value"] + "===")
        status["details"].append({"type_url": f"type.googleapis.com/{detail['type']}", "value": value})
    return status_pb2.Status(**status), error["code"]


async def grpc_answer(method, message):
    try:
        return without_times(await method(message))
    except grpc.aio.AioRpcError as error:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # has what it needs
        code = error.code().name.lower()
        return status_pb2.Status(message=status.message, details=status.details), code


async def http_answer(port, name, message, answer_type, *, snake=False):
    content = json_format.MessageToDict(message, preserving_proto_field_name=snake)
    got = await call(port, name, content)
    if got.status == 200:
        return without_times(json_format.Parse(got.body, answer_type()))
    return status_of(got.json)


@pytest.mark.slow
async def test_random_requests_get_the_answers_of_grpc():
    numbers = random.Random(16)
    messages = [random_request(numbers) for _ in range(300)]
    for message in messages:  # a sample that has no seed is another each time
        if message.options.HasField("top_k") and not message.options.HasField("seed"):
            message.options.seed = 1
    bundle = load_bundle(ROOT / "models/zh-en")
    async with serving_bundle(bundle, max_batch_size=16, http_port=0, max_request_texts=4) as running:
        answers = []
        for start in range(0, len(messages), 6):
            part = messages[start : start + 6]
            answers += await asyncio.gather(*(both_answers(running, each, len(part) % 2) for each in part))
    assert [(message, pair) for message, pair in zip(messages, answers, strict=True) if pair[0] != pair[1]] == []
    refused = sum(isinstance(expected, tuple) for expected, _ in answers)
    assert 30 < refused < 270


async def test_the_other_rpcs_get_the_answers_of_grpc():
    async with serving(http_port=0) as running:
        port, stub = running.server.http_port, running.stub
        listed = await http_answer(port, "ListModels", pb.ListModelsRequest(), pb.ListModelsResponse)
        assert listed == await stub.ListModels(pb.ListModelsRequest())
        for target in ("ab", "", "x" * 100):
            score = pb.ScoreRequest(inputs=[{"source": "ab", "target": target}], return_tokens=True)
            got = await http_answer(port, "Score", score, pb.ScoreResponse)
            assert got == await grpc_answer(stub.Score, score)


def frames(body):
    """The flags and contents of a stream's envelopes."""
    found = []
    while body:
        flags, size = struct.unpack_from(">BI", body)
        found.append((flags, json.loads(body[5 : 5 + size])))
        body = body[5 + size :]
    return found


async def test_a_stream_has_the_messages_of_grpc():
    asked = pb.TranslateStreamRequest(text="hello", options={"max_length": 9})
    async with serving(http_port=0) as running:
        port = running.server.http_port
        expected = [without_times(each) async for each in running.stub.TranslateStream(asked)]
        content = json_format.MessageToJson(asked).encode()
        envelope = struct.pack(">BI", 0, len(content)) + content
        connect = await request(port, "POST", f"{SERVICE}/TranslateStream", envelope, STREAM)
        lines = await call(port, "TranslateStream", content)
        wrong = await call(port, "TranslateStream", {"text": "a", "model": "other"})
        wrong_in_stream = await request(
            port, "POST", f"{SERVICE}/TranslateStream", struct.pack(">BI", 0, 13) + b'{"model":"a"}', STREAM
        )
    *messages, (last, end) = frames(connect.body)
    assert (last, end) == (2, {})
    text = "".join(each.get("textDelta", "") for _, each in messages)
    assert text == "".join(each.text_delta for each in expected) == "hello"
    assert without_times(json_format.ParseDict(messages[-1][1], pb.TranslateStreamResponse())).hypothesis == (
        expected[-1].hypothesis
    )
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert "".join(json.loads(line).get("textDelta", "") for line in lines.body.splitlines()) == "hello"
    assert (wrong.status, wrong.reason) == (404, "MODEL_NOT_FOUND")
    assert wrong_in_stream.status == 200
    ((flags, end),) = frames(wrong_in_stream.body)
    assert (flags, end["error"]["code"]) == (2, "not_found")


def method(name, asked, answered, kind=StreamType.UNARY):
    return MethodInfo(
        name=name,
        service_name=SERVICE[1:],
        input=asked,
        output=answered,
        idempotency_level=IdempotencyLevel.UNKNOWN,
        stream_type=kind,
    )


@pytest.mark.parametrize("codec", [google_protobuf_binary_codec, google_protobuf_json_codec])
async def test_the_client_of_connectrpc_calls_it(codec):
    translate = method("Translate", pb.TranslateRequest, pb.TranslateResponse)
    stream = method("TranslateStream", pb.TranslateStreamRequest, pb.TranslateStreamResponse, StreamType.SERVER_STREAM)
    async with serving(http_port=0) as running:
        address = f"http://127.0.0.1:{running.server.http_port}"
        async with ConnectClient(address, codec=codec()) as client:
            answer = await client.execute_unary(request=pb.TranslateRequest(texts=["hello"]), method=translate)
            assert answer.translations[0].hypotheses[0].text == "hello"
            asked = pb.TranslateStreamRequest(text="hello")
            got = [each async for each in client.execute_server_stream(request=asked, method=stream)]
            assert "".join(each.text_delta for each in got) == "hello"
            with pytest.raises(ConnectError) as caught:
                await client.execute_unary(request=pb.TranslateRequest(model="other"), method=translate)
            assert caught.value.code.value == "not_found"
            assert caught.value.details[0].type_name == "google.rpc.ErrorInfo"


async def curl(*arguments):
    process = await asyncio.create_subprocess_exec(
        "curl", "--silent", "--max-time", "20", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return output


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
async def test_curl_calls_it():
    async with serving(http_port=0) as running:
        address = f"http://127.0.0.1:{running.server.http_port}"
        kind = ("-H", "content-type: application/json")
        answer = json.loads(await curl(*kind, "-d", '{"texts":["hello"]}', f"{address}{SERVICE}/Translate"))
        assert answer["translations"][0]["hypotheses"][0]["text"] == "hello"
        lines = (await curl("-N", *kind, "-d", '{"text":"hello"}', f"{address}{SERVICE}/TranslateStream")).splitlines()
        assert "".join(json.loads(line).get("textDelta", "") for line in lines) == "hello"
        large = json.dumps({"texts": ["a" * 3_000_000]})
        refused = json.loads(await curl(*kind, "-d", "@-", f"{address}{SERVICE}/Translate", "-d", large[:100_000]))
        assert refused["code"] == "invalid_argument"


async def test_health_and_the_description_are_pages():
    async with serving(http_port=0, opened=False) as running:
        port = running.server.http_port
        waiting = await request(port, "GET", "/healthz")
        assert (waiting.status, waiting.json) == (503, {"status": "NOT_SERVING"})
        await running.open()
        ready = await request(port, "GET", "/healthz")
        assert (ready.status, ready.json) == (200, {"status": "SERVING"})
        assert (await request(port, "HEAD", "/healthz")).body == b""
        described = await request(port, "GET", "/openapi.json")
        assert described.json["openapi"] == "3.1.0"
    async with serving(http_port=0, reflection=False) as running:
        assert (await request(running.server.http_port, "GET", "/openapi.json")).status == 404


async def test_pages_of_listed_origins_may_call():
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    async with serving(http_port=0, http_origins=("https://a.example",)) as running:
        port = running.server.http_port
        for origin, allowed in (("https://a.example", "https://a.example"), ("https://b.example", None)):
            asked = await request(port, "OPTIONS", f"{SERVICE}/Translate", headers={"origin": origin} | ask)
            assert (asked.status, asked.headers.get("access-control-allow-origin")) == (204, allowed)
            answer = await call(port, "Translate", {"texts": ["a"]}, {"origin": origin})
            assert answer.headers.get("access-control-allow-origin") == allowed
            assert "origin" in answer.headers["vary"].lower()
            refused = await call(port, "Translate", b"{", {"origin": origin})
            assert (refused.status, refused.headers.get("access-control-allow-origin")) == (400, allowed)


async def test_requests_are_counted_by_both_ports():
    async with serving(http_port=0) as running:
        port = running.server.http_port
        await call(port, "Translate", {"texts": ["a"]})
        await call(port, "Translate", {"texts": []})
        await request(port, "GET", "/nothing")
        count = running.server.metrics.registry.get_sample_value
        assert count("translane_http_requests_total", {"status": "200"}) == 1
        assert count("translane_http_requests_total", {"status": "404"}) == 1
        labels = {"grpc_type": "unary", "grpc_service": SERVICE[1:], "grpc_method": "Translate"}
        assert count("grpc_server_handled_total", labels | {"grpc_code": "OK"}) == 1


async def test_a_caller_is_its_address_and_not_the_private_socket(caplog):
    caplog.set_level("DEBUG", "translane_server.observation.access_log")
    async with serving(http_port=0) as running:
        forged = {"translane-forwarded-peer": "ipv4:192.0.2.1:1", "x-forwarded-for": "192.0.2.1"}
        await call(running.server.http_port, "Translate", {"texts": ["a"]}, forged)
        with pytest.raises(grpc.aio.AioRpcError):
            await running.stub.Translate(pb.TranslateRequest(), metadata=tuple(forged.items()))
    peers = [record.translane_data["peer"] for record in caplog.records if record.message == "request"]
    assert len(peers) == 2
    assert all(peer.startswith("ipv4:127.0.0.1:") for peer in peers)


@pytest.mark.slow
async def test_limits_of_the_server_hold_and_say_when_to_come_back():
    async with serving(http_port=0, max_calls=2, caller_share=1) as running:
        port = running.server.http_port
        running.backend.hold()
        held = [asyncio.create_task(call(port, "Translate", {"texts": ["a"]})) for _ in range(2)]
        await until(lambda: running.server.metrics.registry.get_sample_value("translane_open_calls") == 2)
        refused = await call(port, "Translate", {"texts": ["b"]})
        assert (refused.status, refused.reason, refused.headers["retry-after"]) == (429, "TOO_MANY_CALLS", "1")
        running.backend.release()
        assert [answer.status for answer in await asyncio.gather(*held)] == [200, 200]


async def test_a_deadline_ends_a_call():
    async with serving(http_port=0) as running:
        running.backend.hold()
        late = await call(running.server.http_port, "Translate", {"texts": ["a"]}, {"connect-timeout-ms": "100"})
        assert (late.status, late.json["code"]) == (504, "deadline_exceeded")
        running.backend.release()


async def test_the_server_drains():
    async with serving(http_port=0) as running:
        port = running.server.http_port
        running.backend.hold()
        held = asyncio.create_task(call(port, "Translate", {"texts": ["a"]}))
        await until(lambda: running.server.metrics.registry.get_sample_value("translane_open_calls") == 1)
        stopping = asyncio.create_task(running.server.stop(grace=10))
        await asyncio.sleep(0.1)
        refused = await call(port, "Translate", {"texts": ["b"]})
        assert (refused.status, refused.reason, refused.headers["connection"]) == (503, "UNAVAILABLE", "close")
        running.backend.release()
        assert await stopping
        assert (await held).status == 200
        with pytest.raises(ConnectionError):
            await call(port, "Translate", {"texts": ["a"]})


async def test_a_port_that_is_taken_is_named():
    async with serving(http_port=0) as running:
        with pytest.raises(StartupError, match=f"^cannot listen on 127.0.0.1:{running.server.http_port}: Address"):
            async with serving(http_port=running.server.http_port):
                pass


@pytest.mark.parametrize("origin", ["example.org", "https://a.example/", "https://a.example/page", "file://a", "null"])
def test_what_is_no_origin_is_refused(origin):
    with pytest.raises(ValidationError, match="an origin is https://HOST"):
        make_settings(http_origins=(origin,))
