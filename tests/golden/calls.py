"""Sends requests as they are written in `requests/`, and gives answers in the form that is recorded."""

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from golden.servers import Ports, token
from helpers.http_calls import JSON, ask
from translane.v1 import models_pb2, translation_pb2

_SERVICES = (
    translation_pb2.DESCRIPTOR.services_by_name["TranslationService"],
    models_pb2.DESCRIPTOR.services_by_name["ModelService"],
)
_METHODS = {method.name: method for service in _SERVICES for method in service.methods}
_PATIENCE = 60.0  # [seconds]
_DROPPING = 0.5  # until a server has dropped what was cancelled [seconds]
# What differs between processors and versions.
_LEFT_OUT = ("serverVersion", "server_version", "digest", "modelVersions", "model_versions")

# Processors add floats up in other orders. Products of int8 are exact, but a float that is rounded to int8 may become
# its neighbour. An emulated processor without AVX gives the same texts, and scores that differ by 0.0034 of them.
TOLERANCE = 5e-3


def cases(file: Path) -> dict[str, Any]:
    """The cases of a file, by their names."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    named = {line.pop("name"): line for line in lines}
    assert len(named) == len(lines), f"{file}: two cases have the same name"
    return named


def answer(ports: Ports, case: dict[str, Any]) -> Any:
    """The answer to a case, as JSON."""
    case = _repeated(case)
    got = _http(ports.http, case) if "http" in case else _beside(ports, case)
    return json.loads(json.dumps(got))


def differences(recorded: Any, got: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ."""
    if isinstance(recorded, float) and isinstance(got, float | int):
        if abs(recorded - got) > TOLERANCE * max(1.0, abs(recorded)):
            yield f"{path}: {recorded} → {got}"
    elif isinstance(recorded, dict) and isinstance(got, dict):
        for name in sorted({*recorded, *got}):
            yield from differences(recorded.get(name), got.get(name), f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(got, list) and len(recorded) == len(got):
        for number, pair in enumerate(zip(recorded, got, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif recorded != got:
        yield f"{path}: {json.dumps(recorded, ensure_ascii=False)} → {json.dumps(got, ensure_ascii=False)}"


def _repeated(value: Any) -> Any:
    """A case with each `{"repeat": TEXT, "times": N}` written out, and entries of lists, too."""
    if isinstance(value, dict) and value.keys() == {"repeat", "times"}:
        return _repeated(value["repeat"]) * value["times"]
    if isinstance(value, dict):
        return {name: _repeated(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_repeated(each) for each in value]
    return value


def _beside(ports: Ports, case: dict[str, Any]) -> Any:
    """Call while the streams of `beside`, which are not read on, are open."""
    beside = case.pop("beside", [])
    others = [_call(ports, other) for other in beside]
    try:
        for number, other in enumerate(others):
            if beside[number]["request"] != "never":
                next(other)
        return _answered(ports, case)
    finally:
        for other in others:
            other.cancel()
        if others:
            time.sleep(_DROPPING)


def _call(ports: Ports, case: dict[str, Any]) -> Any:
    method = _METHODS.get(case["call"])
    service = (method or _METHODS["Translate"]).containing_service
    path = f"/{service.full_name}/{case['call']}"
    channel = ports.admin if service is _SERVICES[1] else ports.service
    key = [["authorization", f"Bearer {token(case['key'])}"]] if "key" in case else []
    metadata = tuple((name, value) for name, value in key + case.get("metadata", []))
    messages: Iterator[bytes] = iter([])
    if "bytes" in case:
        messages = iter([bytes.fromhex(case["bytes"])])
    elif case.get("request") == "never":
        messages = iter(_never, b"")
    elif case.get("request") != "none":
        message = ParseDict(case.get("request", {}), _message(case["call"], "input_type"))
        messages = iter([message.SerializeToString()])
    return channel.stream_stream(path, None, None)(messages, timeout=_PATIENCE, metadata=metadata)


def _never() -> bytes:
    threading.Event().wait()
    return b""


def _message(method: str, which: str, content: bytes = b"") -> Any:
    """The message of a method that is its input_type or output_type."""
    return GetMessageClass(getattr(_METHODS[method], which)).FromString(content)


def _answered(ports: Ports, case: dict[str, Any]) -> Any:
    call = _call(ports, case)
    try:
        messages = [_plain(_message(case["call"], "output_type", each)) for each in call]
    except grpc.RpcError as error:
        return {"error": _error(error)}
    return _joined(messages) if case["call"] == "TranslateStream" else messages[0]


def _plain(message: Any) -> dict[str, Any]:
    return _stable(MessageToDict(message, preserving_proto_field_name=True))


def _stable(plain: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs from run to run."""
    cached = plain.pop("timing", {}).get("cached_texts")
    for each in [plain, plain.get("model"), *plain.get("models", [])]:
        for name in _LEFT_OUT if isinstance(each, dict) else ():
            each.pop(name, None)
    return {**plain, "cached_texts": cached} if cached else plain


def _joined(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What a stream says: its deltas together, its last message, and what others have besides a delta: nothing."""
    text = "".join(message.pop("text_delta", "") for message in messages)
    *others, last = messages
    return {"deltas": text, "last": last, **({"others": others} if any(others) else {})}


def _error(error: Any) -> dict[str, Any]:
    message_without_folder = re.sub(r"model bundle /\S*/", "model bundle ", error.details())
    told: dict[str, Any] = {"code": error.code().name, "message": message_without_folder}
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        name = detail.type_url.rpartition(".")[2]
        message = getattr(error_details_pb2, name).FromString(detail.value)
        told[name] = True if name == "RetryInfo" else MessageToDict(message, preserving_proto_field_name=True)
    if "RetryInfo" in told:  # its message may count what else the server did at the moment
        told["message"] = re.sub(r"^\d+|(?<=have )\d+", "N", told["message"])
    return told


def _http(port: int, case: dict[str, Any]) -> Any:
    method, path = case["http"].split()
    body = case["text"] if "text" in case else json.dumps(case["body"]) if "body" in case else ""
    got = ask(port, method, path, body.encode() or None, JSON | case.get("headers", {}))
    told = {"status": got.status, "type": got.headers.get("content-type")}
    lines = [json.loads(line) for line in got.body.decode().splitlines()]
    if told["type"] != "application/x-ndjson":
        return {**told, "body": _stable(lines[0])}
    text = "".join(line.pop("textDelta", "") for line in lines)
    return {**told, "deltas": text, "last": _stable(lines[-1])}
