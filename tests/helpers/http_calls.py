"""Requests to the HTTP port, by Python's own client."""

import asyncio
import http.client
import inspect
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PATHS = {
    "Translate": "/v1/translate",
    "TranslateStream": "/v1/stream",
    "TranslateDocument": "/v1/documents",
    "Score": "/v1/score",
    "ListModels": "/v1/models",
}
JSON = {"content-type": "application/json"}


class Answer(NamedTuple):
    """The answer to a request; `headers` has names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """The reason of an error."""
        (info,) = (each for each in self.json["details"] if each["@type"].endswith("/google.rpc.ErrorInfo"))
        assert info["domain"] == "translane"
        return str(info["reason"])

    @property
    def field(self) -> str:
        """The field at fault."""
        (bad,) = (each for each in self.json["details"] if each["@type"].endswith("/google.rpc.BadRequest"))
        return str(bad["fieldViolations"][0]["field"])


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    source: str = "127.0.0.1",
) -> Answer:
    """Send one request over HTTP/1.1, from the address `source`."""
    place: dict[str, Any] = {"timeout": 30, "source_address": (source, 0)}
    connection = (
        http.client.HTTPSConnection("localhost", port, context=tls, **place)
        if tls
        else http.client.HTTPConnection("127.0.0.1", port, **place)
    )
    try:
        connection.request(method, path, body, headers or {})
        got = connection.getresponse()
        return Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())
    finally:
        connection.close()


async def request(*arguments: Any, **more: Any) -> Answer:
    """As `ask`."""
    return await asyncio.to_thread(ask, *arguments, **more)


async def call(port: int, name: str, content: Any, headers: dict[str, str] | None = None, **more: Any) -> Answer:
    """Call a method of TranslationService with JSON."""
    if name == "ListModels":
        return await request(port, "GET", PATHS[name], headers=headers, **more)
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return await request(port, "POST", PATHS[name], body, JSON | (headers or {}), **more)


async def until(holds: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until `holds`, which may be asynchronous, is true. TimeoutError: it was not."""
    async with asyncio.timeout(seconds):
        while not (await found if inspect.isawaitable(found := holds()) else found):  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.01)
