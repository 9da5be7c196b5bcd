"""Handlers that receive their messages themselves.

gRPC reads and parses the message of a unary call before it calls the handler. Until then no limit of ours applies, and
a call that never sends a message stays open for ever. So every method is served in the form whose handler reads its own
messages. On the wire both forms are the same
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests), and a client cannot tell them apart.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, Protocol, cast

import grpc
from google.protobuf.message import DecodeError

from translane_server.errors import FieldViolation, InvalidRequestError

Context = grpc.aio.ServicerContext[Any, Any]


class Call(Protocol):
    """A call in progress. First it enters, then it receives, then it is answered or fails, and last it ends."""

    def enter(self) -> None:
        """Count the call as open.

        Raises:
            RequestError: the call is refused.
        """

    async def receive(self) -> bytes:
        """Return the call's first message.

        Raises:
            RequestError: the call is refused.
        """

    async def receive_next(self) -> bytes | None:
        """Return another message; None if there is none.

        Raises:
            RequestError: the call is refused.
        """

    async def write(self, message: Any) -> None:
        """Send a message to the caller.

        Raises:
            RequestError: the server ends the call.
        """

    def answered(self) -> None:
        """Note that the method has returned."""

    async def failed(self, error: BaseException) -> None:
        """Note that the method has raised `error`, and answer. If this returns, `error` must be raised again."""

    def ended(self) -> None:
        """Note that the method has ended."""


def kind(handler: Any) -> str:
    """The kind of a gRPC handler, as metrics name it."""
    if handler.request_streaming:
        return "bidi_stream" if handler.response_streaming else "client_stream"
    return "server_stream" if handler.response_streaming else "unary"


def reading_handler(handler: Any, begin: Callable[[Context], Call]) -> Any:
    """Return a handler that does what `handler` does, in a call that `begin` begins.

    All behaviours of this server are asynchronous.
    """
    shape = f"{_stream(handler.request_streaming)}_{_stream(handler.response_streaming)}"
    behavior = getattr(handler, shape)
    parse = handler.request_deserializer

    async def request_of(call: Call) -> Any:
        call.enter()
        if handler.request_streaming:
            return _messages(call, parse)
        return _parsed(parse, await call.receive())

    async def answer(_messages: Any, context: Context) -> Any:
        call = begin(context)
        if handler.response_streaming:
            context = cast("Context", _WritingContext(call, context))
        try:
            response = await behavior(await request_of(call), context)
            call.answered()
        except BaseException as error:
            await call.failed(error)
            raise
        else:
            return response
        finally:
            call.ended()

    async def stream(_messages: Any, context: Context) -> None:
        call = begin(context)
        try:
            async for response in behavior(await request_of(call), context):
                await call.write(response)
            call.answered()
        except BaseException as error:
            await call.failed(error)
            raise
        finally:
            call.ended()

    if handler.response_streaming:
        method = stream if inspect.isasyncgenfunction(behavior) else answer
        return grpc.stream_stream_rpc_method_handler(method, None, handler.response_serializer)
    return grpc.stream_unary_rpc_method_handler(answer, None, handler.response_serializer)


def refusing_handler(begin: Callable[[Context], Call], error: Exception) -> Any:
    """Return a handler that fails with `error`, without waiting for a message."""

    async def refuse(_messages: Any, _context: Context) -> NoReturn:
        raise error

    return reading_handler(grpc.stream_unary_rpc_method_handler(refuse), begin)


class _WritingContext:
    """A context whose messages are sent by a call."""

    def __init__(self, call: Call, context: Context) -> None:
        self.write = call.write
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


async def _messages(call: Call, parse: Callable[[bytes], Any] | None) -> AsyncIterator[Any]:
    yield _parsed(parse, await call.receive())
    while (message := await call.receive_next()) is not None:
        yield _parsed(parse, message)


def _parsed(parse: Callable[[bytes], Any] | None, message: bytes) -> Any:
    if parse is None:
        return message
    try:
        return parse(message)
    except DecodeError:  # its text would show the message
        violation = FieldViolation("request", "is not a message of this method: it cannot be parsed")
        raise InvalidRequestError(violation) from None


def _stream(streaming: bool) -> str:
    return "stream" if streaming else "unary"
