"""The HTTP port answers what the gRPC port answers, in JSON."""

import asyncio
import json

import grpc
import pytest
from pydantic import ValidationError

from fakes.serving import make_settings, serving
from helpers.http_calls import PATHS, until
from translane.v1 import translation_pb2 as pb
from translane_server.api.service import SERVICE_NAME


async def test_an_error_within_a_stream_is_its_last_line():
    async with serving(http_port=0) as running:
        asked = {"text": "a" * 20, "options": {"minLength": 20}}
        running.backend.hold()
        streaming = asyncio.create_task(running.call("TranslateStream", asked))
        await until(lambda: running.dispatcher.active_rows == 1)
        running.backend.release(steps=3)
        await asyncio.sleep(0.2)
        stopping = asyncio.create_task(running.server.stop(grace=0))
        answer = await streaming
        running.backend.release()
        await stopping
    *_, last = [json.loads(line) for line in answer.body.splitlines()]
    assert answer.status == 200
    assert (last["error"]["code"], last["error"]["details"][0]["reason"]) == (14, "UNAVAILABLE")


async def test_clients_that_send_everything_first_see_that_it_is_too_large():
    async with serving(http_port=0) as running:
        refused = await running.call("Translate", {"texts": ["a" * 12_000_000]})
        assert (refused.status, refused.reason) == (413, "MESSAGE_TOO_LARGE")


async def test_health_and_the_description_are_pages():
    async with serving(http_port=0, opened=False) as running:
        waiting = await running.request("GET", "/healthz")
        assert (waiting.status, waiting.json) == (503, {"status": "NOT_SERVING"})
        await running.open()
        ready = await running.request("GET", "/healthz")
        assert (ready.status, ready.json) == (200, {"status": "SERVING"})
        assert (await running.request("HEAD", "/healthz")).body == b""
        page = await running.request("GET", "/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
        assert page.headers["x-frame-options"] == "DENY"
        described = await running.request("GET", "/openapi.json")
        assert described.json["openapi"] == "3.1.0"
    async with serving(http_port=0, reflection=False) as running:
        assert b'href="docs"' not in (await running.request("GET", "/")).body
        for path in ("/openapi.json", "/docs"):
            assert (await running.request("GET", path)).status == 404


async def test_pages_of_listed_origins_may_call():
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    async with serving(http_port=0, http_origins=("https://a.example",)) as running:
        for origin, allowed in (("https://a.example", "https://a.example"), ("https://b.example", None)):
            asked = await running.request("OPTIONS", PATHS["Translate"], headers={"origin": origin} | ask)
            assert (asked.status, asked.headers.get("access-control-allow-origin")) == (
                200 if allowed else 400,
                allowed,
            )
            answer = await running.call("Translate", {"texts": ["a"]}, {"origin": origin})
            assert answer.headers.get("access-control-allow-origin") == allowed
            assert "origin" in answer.headers["vary"].lower()
            refused = await running.call("Translate", b"{", {"origin": origin})
            assert (refused.status, refused.headers.get("access-control-allow-origin")) == (400, allowed)


async def test_requests_are_counted_by_both_ports():
    async with serving(http_port=0) as running:
        await running.call("Translate", {"texts": ["a"]})
        await running.call("Translate", {"texts": []})
        await running.request("GET", "/nothing")
        for code, result in (("OK", "ok"), ("INVALID_ARGUMENT", "failed")):
            assert running.value("translane_requests_total", model="fake", protocol="http", code=code) == 1
            assert running.value("translane_request_duration_seconds_count", model="fake", result=result) == 1
        assert running.value("translane_request_texts_sum", model="fake") == 1
        labels = {"grpc_type": "unary", "grpc_service": SERVICE_NAME, "grpc_method": "Translate"}
        assert running.value("grpc_server_handled_total", **labels, grpc_code="OK") == 1


@pytest.mark.parametrize(
    ("sent", "told"), [("order-7/3", "order-7/3"), ("x" * 128, "x" * 128), ("x" * 129, None), ("a b", None)]
)
async def test_a_callers_name_of_a_request_is_in_its_answer_and_in_the_log(caplog, sent, told):
    caplog.set_level("INFO", "translane_server.observation.logs")
    async with serving(http_port=0) as running:
        for body, status in (({"texts": ["a"]}, 200), ({"texts": ["a"], "options": {"beamSize": -1}}, 400)):
            answer = await running.call("Translate", body, {"x-request-id": sent})
            assert (answer.status, answer.headers.get("x-request-id")) == (status, told)
        for texts in (["a"], []):
            asked = running.stub.Translate(pb.TranslateRequest(texts=texts), metadata=[("x-request-id", sent)])
            assert dict(await asked.trailing_metadata()).get("x-request-id") == told
            await asyncio.gather(asked, return_exceptions=True)
    lines = [record.translane_data for record in caplog.records if record.getMessage() == "request"]
    assert [line.get("request_id") for line in lines] == [told] * 4
    assert [(line.get("reason"), line.get("field")) for line in lines] == [
        (None, None),
        ("INVALID_FIELD", "options.beam_size"),
        (None, None),
        ("INVALID_FIELD", "texts"),
    ]


async def test_a_caller_is_its_address_and_not_what_it_says(caplog):
    caplog.set_level("DEBUG", "translane_server.observation.logs")
    async with serving(http_port=0) as running:
        forged = {"translane-forwarded-peer": "ipv4:192.0.2.1:1", "x-forwarded-for": "192.0.2.1"}
        await running.call("Translate", {"texts": ["a"]}, forged)
        with pytest.raises(grpc.aio.AioRpcError):
            await running.stub.Translate(pb.TranslateRequest(), metadata=tuple(forged.items()))
    peers = [record.translane_data["peer"] for record in caplog.records if record.message == "request"]
    assert len(peers) == 2
    assert all(peer.startswith("ipv4:127.0.0.1:") for peer in peers)


async def test_a_deadline_ends_a_call():
    async with serving(http_port=0) as running:
        running.backend.hold()
        late = await running.call("Translate", {"texts": ["a"]}, {"request-timeout": "0.1"})
        assert (late.status, late.json["code"], late.reason) == (504, 4, "REQUEST_TIMEOUT")
        await until(lambda: running.dispatcher.active_rows == 1)
        running.backend.release()


async def test_the_server_drains():
    async with serving(http_port=0) as running:
        running.backend.hold()
        held = asyncio.create_task(running.call("Translate", {"texts": ["a"]}))
        await until(lambda: running.value("translane_open_calls") == 1)
        stopping = asyncio.create_task(running.server.stop(grace=10))
        await asyncio.sleep(0.1)
        refused = await running.call("Translate", {"texts": ["b"]})
        assert (refused.status, refused.reason, refused.headers["connection"]) == (503, "UNAVAILABLE", "close")
        running.backend.release()
        assert await stopping
        assert (await held).status == 200
        with pytest.raises(ConnectionError):
            await running.call("Translate", {"texts": ["a"]})


@pytest.mark.parametrize("origin", ["example.org", "https://a.example/", "https://a.example/page", "file://a", "null"])
def test_what_is_no_origin_is_refused(origin):
    with pytest.raises(ValidationError, match="an origin is https://HOST"):
        make_settings(http_origins=(origin,))
