"""Fields of any content and size are refused, or answered, while everybody else is served."""

import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from helpers.reliability.bounds import GAP, HONEST_CALL, REFUSAL
from helpers.reliability.cases import SENTENCES
from helpers.reliability.failures import failure_of
from helpers.reliability.form import form
from helpers.reliability.probe import bystander
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(150)

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


def document(kind, content):
    return pb.TranslateDocumentRequest(mime_type=kind, content=content)


HOSTILE = {
    "a long source tag": ("Translate", pb.TranslateRequest(source_language=TAG)),
    "a long target tag": ("Translate", pb.TranslateRequest(texts=["你好。"], target_language=TAG)),
    "a long tag of a stream": ("TranslateStream", pb.TranslateStreamRequest(text="你好。", source_language=TAG)),
    "a long tag of a score": ("Score", pb.ScoreRequest(source_language=TAG)),
    "a long name of a model": ("Translate", pb.TranslateRequest(texts=["你好。"], model="m" * HUGE)),
    "a long prefix and phrases": (
        "Translate",
        pb.TranslateRequest(texts=["你好。"], options=options(target_prefix="a" * HUGE, suppressed_phrases=PHRASES)),
    ),
    "a long phrase": (
        "Translate",
        pb.TranslateRequest(texts=["你好。"], options=options(suppressed_phrases=["a" * HUGE])),
    ),
    "a long term": (
        "Translate",
        pb.TranslateRequest(texts=["你好。"], options=options(terminology=[pb.Term(source="a" * HUGE, target="b")])),
    ),
    "many terms": (
        "Translate",
        pb.TranslateRequest(texts=["你好。"], options=options(terminology=[pb.Term()] * 200_000)),
    ),
    "many texts": ("Translate", pb.TranslateRequest(texts=["好"] * 150_000)),
    "a document of many lines": ("TranslateDocument", document("text/plain", b"a\n" * 300_000)),
    "a document of many cells": ("TranslateDocument", document("text/html", b"<td>a" * 20_000)),
    "a document of deep elements": ("TranslateDocument", document("application/xliff+xml", b"<a>" * 200_000)),
    "a document of a long string": ("TranslateDocument", document("text/x-gettext-translation", b'msgid "' * 90_000)),
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
