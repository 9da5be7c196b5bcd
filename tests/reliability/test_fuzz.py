"""Random requests, by type and by bytes: each is answered or refused by the server itself, and nothing breaks."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from helpers.reliability.bounds import GAP
from helpers.reliability.cases import SENTENCES
from helpers.reliability.failures import failure_of
from helpers.reliability.form import form
from helpers.reliability.load import CHANNEL_OPTIONS, Load
from helpers.reliability.probe import bystander
from translane.v1 import translation_pb2 as pb
from translane_server.text.documents import KINDS

pytestmark = pytest.mark.timeout(form(150, 1200))

COUNT = form(500, 10_000)
AT_ONCE = 16
ALLOWED = {
    "OK",
    "INVALID_ARGUMENT(INVALID_FIELD)",
    "NOT_FOUND(MODEL_NOT_FOUND)",
    "RESOURCE_EXHAUSTED(QUEUE_FULL)",
}


REQUESTS: dict[str, Callable[[], Message]] = {
    "Translate": pb.TranslateRequest,
    "TranslateStream": pb.TranslateStreamRequest,
    "TranslateDocument": pb.TranslateDocumentRequest,
    "Score": pb.ScoreRequest,
    "ListModels": pb.ListModelsRequest,
}

_FILES = (
    "<p>{}<b>{}</p>", "# {}\n\n- {}\n", "{}\n{}\n", 'msgid "{}"\nmsgstr "{}"\n',
    "1\n00:00:01,000 --> 00:00:02,000\n{}{}\n", "WEBVTT\n\n00:01.000 --> 00:02.000\n{}{}\n",
    '<xliff version="1.2"><file><trans-unit id="1"><source>{}</source><target>{}</target></trans-unit></file></xliff>',
)  # fmt: skip

_STRINGS = (
    "", " ", "zh", "en", "zh-CN", "zh-en", "x", "\0", "\r\n", "</s>", "<unk>", "▁", "a" * 101, "e\u0301" * 40,
    "\u0301\u0316" * 50, "\u200d" * 30, "🏳️\u200d🌈" * 5, "\ufeff", "\u202e", "-" * 300, "zh" + "-aa" * 40,
    "ก" * 50, "が" * 20, "…", "ﷺ" * 8, "\U0010ffff", "%s%n", "../../etc/passwd", "a b " * 30, "1" * 60, "。!?" * 20,
)  # fmt: skip
_INTEGERS = (0, 1, -1, 2, 3, 4, 16, 17, 255, 256, 257, 2**31 - 1, -(2**31))
_FLOATS = (0.0, -0.0, 1.0, 0.5, -1.0, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))
_MOST_ITEMS = 4
_LONG, _LONG_SHARE = 30_000, 0.01  # characters of the long strings, and how many of all strings are long


def random_request(name: str, pick: random.Random) -> Message:
    """Return a request of an RPC, each field of which is unset, sensible or hostile."""
    return _filled(REQUESTS[name](), pick)


def random_bytes(name: str, pick: random.Random) -> bytes:
    """Return random bytes, or the bytes of a random request with some faults."""
    if pick.random() < 0.2:
        return pick.randbytes(pick.randrange(200))
    content = bytearray(random_request(name, pick).SerializeToString())
    for _ in range(pick.randint(1, 6)):
        place = pick.randrange(len(content) + 1)
        fault = pick.randrange(4)
        if fault == 0:
            content[place:place] = pick.randbytes(pick.randint(1, 8))
        elif fault == 1:
            del content[place : place + pick.randint(1, 8)]
        elif fault == 2:
            content[place:place] = content[max(0, place - 8) : place] * 2
        elif place < len(content):
            content[place] ^= 1 << pick.randrange(8)
    return bytes(content)


def _filled(message: Message, pick: random.Random) -> Message:
    share = pick.choice((0.1, 0.3, 0.6))  # of the fields that are set
    for field in message.DESCRIPTOR.fields:
        is_text = field.name in ("text", "texts", "inputs", "source", "target", "content", "mime_type")
        if not is_text and pick.random() > share:
            continue
        value: Any = getattr(message, field.name)
        if field.is_repeated:
            for _ in range(pick.randrange(_MOST_ITEMS)):
                if field.message_type:
                    _filled(value.add(), pick)
                else:
                    value.append(_value(field, pick))
        elif field.message_type:
            value.SetInParent()
            _filled(value, pick)
        else:
            setattr(message, field.name, _value(field, pick))
    return message


def _value(field: Any, pick: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        texts = [pick.choice((*SENTENCES, *_STRINGS)) for _ in range(2)]
        return pick.choice(_FILES).format(*texts).encode()
    if field.name == "mime_type" and pick.random() < 0.9:
        return pick.choice(tuple(KINDS))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = pick.choice(SENTENCES if pick.random() < 0.5 else _STRINGS)
        return (text * _LONG)[:_LONG] if pick.random() < _LONG_SHARE else text
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return pick.random() < 0.5
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return pick.choice(_FLOATS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return pick.choice((0, 1, 2**63, 2**64 - 1))
    return pick.choice(_INTEGERS)


async def send(channel, name, payload):
    """How a call with these bytes as its message ended."""
    path = f"/translane.v1.TranslationService/{name}"
    try:
        if name in ("TranslateStream", "TranslateDocument"):
            async for _ in channel.unary_stream(path)(payload, timeout=60):
                pass
        else:
            await channel.unary_unary(path)(payload, timeout=60)
    except grpc.aio.AioRpcError as error:
        return failure_of(error).name
    return "OK"


def by_type(name, pick):
    return random_request(name, pick).SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("made", [by_type, random_bytes], ids=["by type", "by bytes"])
async def test_random_requests(shared_server, oracle, figures, made):
    pick = random.Random(13)
    names = [pick.choice([*REQUESTS]) for _ in range(COUNT)]
    waiting = iter([(name, made(name, pick)) for name in names])
    outcomes: Counter[str] = Counter()
    culprits: dict[str, str] = {}

    async def caller(channel):
        for name, payload in waiting:
            outcome = await send(channel, name, payload)
            outcomes[outcome] += 1
            if outcome not in ALLOWED:
                culprits.setdefault(outcome, f"{name} {payload.hex()[:400]}")

    with bystander(shared_server.address) as seen:
        async with grpc.aio.insecure_channel(shared_server.address, options=CHANNEL_OPTIONS) as channel:
            await asyncio.gather(*[caller(channel) for _ in range(AT_ONCE)])
    async with Load(shared_server.address, oracle, callers=4) as load:
        await load.wait_for_answers(20)
    figures.add(
        requests=outcomes.total(),
        outcomes=dict(outcomes),
        right_afterwards=load.answered,
        lost=load.lost,
        **seen.figures,
    )
    assert culprits == {}
    assert outcomes.total() == COUNT
    assert load.lost == 0
    assert not seen.failed
    assert max(seen.health, seen.translate) < GAP
