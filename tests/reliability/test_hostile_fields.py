"""Fields, files and messages of any content and size are refused, or answered, while everybody else is served."""

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from helpers.failures import failure_of
from helpers.reliability.bounds import GAP, HONEST_CALL, REFUSAL
from helpers.reliability.cases import SENTENCES
from helpers.reliability.form import form
from helpers.reliability.load import CHANNEL_OPTIONS, Load
from helpers.reliability.probe import bystander
from helpers.tiny_bundle import TINY
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_server.core.terminal import printable
from translane_server.text.documents import KINDS

pytestmark = pytest.mark.timeout(form(150, 1200))

KIB = 1024
HUGE = 900 * KIB  # nearly a whole message
CALL_TIME = form(8, 60)  # a hostile call ends by then in any case [seconds]
EXPECTED = {"INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED"}

TAG = "a-" * (32 * KIB)
MARKS = "e" + "\u0301\u0316" * (64 * KIB // 2)
PHRASES = [f"phrase {number}" for number in range(64)]
UNKNOWN = "ж"  # which the model's vocabulary does not have, so that any number of them is one token
NESTED_TERMS = [pb.Term(source=UNKNOWN * length, target="a") for length in range(1, 129)]


def options(**values):
    return pb.DecodingOptions(**values)


def translation(**values):
    return "Translate", pb.TranslateRequest(texts=["你好。"], options=options(**values))


def document(kind, content):
    return "TranslateDocument", pb.TranslateDocumentRequest(mime_type=kind, content=content)


HOSTILE = {
    "a long source tag": ("Translate", pb.TranslateRequest(source_language=TAG)),
    "a long target tag": ("Translate", pb.TranslateRequest(texts=["你好。"], target_language=TAG)),
    "a long tag of a stream": ("TranslateStream", pb.TranslateStreamRequest(text="你好。", source_language=TAG)),
    "a long tag of a score": ("Score", pb.ScoreRequest(source_language=TAG)),
    "a long name of a model": ("Translate", pb.TranslateRequest(texts=["你好。"], model="m" * HUGE)),
    "a long prefix and phrases": translation(target_prefix="a" * HUGE, suppressed_phrases=PHRASES),
    "a long phrase": translation(suppressed_phrases=["a" * HUGE]),
    "a long term": translation(terminology=[pb.Term(source="a" * HUGE, target="b")]),
    "many terms": translation(terminology=[pb.Term()] * 200_000),
    "many texts": ("Translate", pb.TranslateRequest(texts=["好"] * 150_000)),
    "a document of many lines": document("text/plain", b"a\n" * 300_000),
    "a document of many cells": document("text/html", b"<td>a" * 20_000),
    "a document of deep elements": document("application/xliff+xml", b"<a>" * 200_000),
    "a document of a long string": document("text/x-gettext-translation", b'msgid "' * 90_000),
    "many inputs": ("Score", pb.ScoreRequest(inputs=[pb.ScoreInput(source="好", target="a")] * 60_000)),
}


def ask(address, method, request, seconds=CALL_TIME):
    """How a call ended, and how long it took."""
    started = time.monotonic()
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        try:
            answer = getattr(stub, method)(request, timeout=seconds)
            if method in ("TranslateStream", "TranslateDocument"):
                list(answer)
        except grpc.RpcError as error:
            failure = failure_of(error)
            return failure.code.name, bool(failure.reason), time.monotonic() - started
    return "OK", True, time.monotonic() - started


@pytest.mark.slow
def test_a_hostile_field_is_refused_at_once(start, figures):
    with start("--grace-period=2") as server:
        found, slow = {}, {}
        with bystander(server.address) as seen:
            for name, (method, request) in HOSTILE.items():
                code, has_reason, seconds = ask(server.address, method, request)
                if code not in EXPECTED or not has_reason:
                    found[name] = code
                if seconds > REFUSAL:
                    slow[name] = f"{seconds:.1f} s"
        exit_code = server.terminate()
        figures.add(fields=len(HOSTILE), not_refused=found, slow=slow, exit_code=exit_code, **seen.figures)
        assert found == {}
        assert slow == {}
        assert seen.health < GAP
        assert exit_code == 0


@pytest.mark.slow
def test_a_long_run_of_combining_marks_holds_up_nobody(start, figures):
    request = pb.TranslateRequest(
        texts=[MARKS],
        options=options(split_sentences=True, terminology=[pb.Term(source="é", target="e")]),
    )
    with start("--grace-period=2") as server:
        with bystander(server.address) as seen:
            code, has_reason, seconds = ask(server.address, "Translate", request)
        figures.add(KiB_of_text=len(MARKS.encode()) // KIB, code=code, its_call_s=seconds, **seen.figures)
        assert code in EXPECTED | {"OK"}
        assert has_reason
        assert seen.health < GAP
        assert server.terminate() == 0


@pytest.mark.slow
def test_nested_terms_hold_up_no_other_long_request(start, figures):
    texts = [UNKNOWN * 16_000] * 28
    hostile = pb.TranslateRequest(texts=texts, options=options(terminology=NESTED_TERMS))
    honest = pb.TranslateRequest(texts=[*SENTENCES] * 2)
    with start("--grace-period=2") as server, ThreadPoolExecutor(2) as threads:
        with bystander(server.address) as seen:
            calls = [threads.submit(ask, server.address, "Translate", hostile) for _ in range(2)]
            time.sleep(0.5)
            code, _, seconds = ask(server.address, "Translate", honest)
        began = time.monotonic()
        exit_code = server.terminate()
        took = time.monotonic() - began
        found = [call.result()[0] for call in calls]
        figures.add(
            hostile=found, honest=code, honest_call_s=seconds, exit_code=exit_code, exit_took_s=took, **seen.figures
        )
        assert code == "OK"
        assert seconds < HONEST_CALL
        assert seen.health < GAP
        assert exit_code == 0


# The commands on hostile files and under memory limits: one sentence, the exit code 1, and no waiting.


PATIENCE = 120  # seconds, on a busy machine
COMMANDS = {
    "translane export": ["-m", "translane", "export", "FOLDER", "--output", "OUTPUT", "--threads", "1"],
    "translane serve": ["-m", "translane", "serve", "FOLDER", "--port", "0", "--metrics-port", "0"],
}


def sentence(command: str, folder: Path, memory: int | None = None) -> str:
    """Run a command that fails; return what it says beside its progress. `memory` is a limit [bytes]."""
    words = {"FOLDER": str(folder), "OUTPUT": str(folder.with_name("out"))}

    # `preexec_fn` would fork this process, and gRPC says at times in the child that its files are closed.
    limits = ["prlimit", "--core=0", f"--as={memory or 'unlimited'}"]
    ended = subprocess.run(
        [*limits, sys.executable, *(words.get(word, word) for word in COMMANDS[command])],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    error = ended.stderr.decode()
    lines = [line for line in error.splitlines() if not line.startswith("translane export: reading ")]
    assert ended.returncode == 1, error
    assert len(lines) == 1, error
    assert lines[0] == printable(lines[0])
    assert lines[0].startswith(f"{command}: ")
    assert not folder.with_name("out").exists()
    return lines[0]


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def nested(path: Path) -> None:
    path.write_bytes(b"[" * 200_000)


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def vast(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 * 10**9)  # without blocks


HARMS = [pipe, nested, endless, vast]
# The exporter takes seconds to start, and reads this file as the server does.
HARMED = [("translane serve", harm) for harm in HARMS] + [("translane export", harm) for harm in form([pipe], HARMS)]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "harm"), HARMED)
def test_a_manifest_that_is_none(command, harm, tmp_path):
    folder = shutil.copytree(TINY, tmp_path / "bundle")
    harm(folder / "manifest.json")
    said = sentence(command, folder)
    print(f"{command}, {harm.__name__}: {said}")


@pytest.mark.parametrize("command", COMMANDS)
def test_too_little_memory(command, tmp_path):
    folder = shutil.copytree(TINY, tmp_path / "bundle")
    said = sentence(command, folder, memory=45_000_000 if command == "translane serve" else 400_000_000)
    assert "memory" in said


# Random requests, by type and by bytes: each is answered or refused by the server itself, and nothing breaks.


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
