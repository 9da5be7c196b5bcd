"""The order in which every call is answered, whatever protocol it came by."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from translane_server.access.authenticator import KeyRing
from translane_server.api.admission import Admission
from translane_server.api.call import Call, Transport
from translane_server.api.status import CODES, internal, status_of
from translane_server.core.errors import (
    FieldViolation,
    InvalidRequestError,
    RequestError,
    RequestTimeoutError,
    UnavailableError,
    first_line,
    is_about_memory,
)
from translane_server.observation.logs import calls_log, log_call
from translane_server.observation.metrics import REJECTIONS, Metrics
from translane_server.observation.tracing import Tracer, current_trace
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)

# A caller gives up at its deadline. Its clock may be ahead of the server's by this much [seconds].
_DEADLINE_TOLERANCE = 0.01

# How long a caller should wait whose call finds no memory [seconds].
_RETRY_WITHOUT_MEMORY = 1.0

# Returns the answer to a request and its call. Of a method that writes many messages, it also gets what sends them.
Handler = Callable[..., Any]
Parse = Callable[[bytes], Any]


class Answering:
    """Counts, times, traces, admits, answers and logs calls. Open calls are `shown_in` metrics."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        keys: KeyRing | None = None,
        tracer: Tracer | None = None,
        shown_in: Metrics | None = None,
    ) -> None:
        self.admission = admission = Admission(settings, keys)
        self._tracer = tracer
        if shown_in:
            shown_in.watch_calls(lambda: admission.open.calls, lambda: admission.open.size, settings.max_calls)

    async def answer(self, call: Call, transport: Transport, handler: Handler, parse: Parse | None) -> Any:
        """Answer a call in its task: admit it, receive and parse its message, handle it, and log how it ended.

        A handler without `parse` takes bytes. Return what the handler returns.

        Raises:
            BaseException: what `transport.fail` raises; or what the handler raises, where nobody is left to be told.
        """
        method, admission = call.method, self.admission
        method.metrics.started += 1
        if self._tracer and method.is_traced:
            call.trace = self._tracer.begin(method.full_name, call.metadata, call.peer)
            current_trace.set(call.trace)
        if calls_log.isEnabledFor(method.log_level) or (call.trace and call.trace.is_recorded):
            call.facts = {"request_id": call.request_id} if call.request_id else {}
        try:
            admission.enter(call)
            if method.reads_many:
                request = self._messages(call, transport, parse)
            else:
                request = _parsed(parse, await admission.read(call, transport))
            if method.writes_many:
                response = await handler(request, call, partial(_write, call, transport))
            else:
                response = await handler(request, call)
            call.code = "OK"
        except BaseException as error:
            admission.finished(call)
            if status := self._failed(call, error):
                await transport.fail(status)
            raise
        else:
            return response
        finally:
            self._ended(call)

    async def _messages(self, call: Call, transport: Transport, parse: Parse | None) -> AsyncIterator[Any]:
        yield _parsed(parse, await self.admission.read(call, transport))
        while (message := await self.admission.read_next(call, transport)) is not None:
            yield _parsed(parse, message)

    def _failed(self, call: Call, error: BaseException) -> Status | None:
        """Note how a call failed, and return what its caller is told; None if the caller has gone."""
        if call.refusal and isinstance(error, asyncio.CancelledError):
            error = call.refusal
        if isinstance(error, Exception) and not isinstance(error, RequestError) and is_about_memory(error):
            _log.error("%s failed: %s", call.method.name, first_line(error))
            error = UnavailableError("the server has no memory for this call", retry_after=_RETRY_WITHOUT_MEMORY)
        if isinstance(error, RequestError):
            call.code = CODES[type(error)].name
            call.note(reason=error.reason)
            if isinstance(error, InvalidRequestError):
                call.note(field=error.violations[0].field)
            if error.reason in REJECTIONS:
                call.method.rejected.labels(error.reason).inc()
                if call.allowance:
                    call.allowance.count_refusal(error.reason)
            return status_of(error)
        if isinstance(error, Exception):  # a bug, whose details the caller must not see
            call.code = "INTERNAL"
            _log.error("%s failed", call.method.name, exc_info=error)
            return internal()
        passed = time.monotonic() - call.started
        is_late = call.timeout is not None and passed >= call.timeout - _DEADLINE_TOLERANCE
        call.code = "DEADLINE_EXCEEDED" if is_late else "CANCELLED"
        return None

    def _ended(self, call: Call) -> None:
        """Count and log a call."""
        if call.allowance:
            call.allowance.give_back(call.paid)
        self.admission.finished(call)
        now = time.monotonic()
        seconds = now - call.started
        method, code = call.method, call.code
        exemplar = dict(call.trace.ids) if call.trace and call.trace.is_recorded else None
        method.metrics.handled[code] += 1
        method.metrics.handling.observe([seconds], exemplar)
        if method.asks_models:
            taken = now - (call.accepted or call.started)
            for model in call.counted:
                model.answered(code, method.protocol, taken, exemplar)
            if not call.counted:
                method.unrouted[code, method.protocol] += 1
        facts = call.facts or {}
        if calls_log.isEnabledFor(method.log_level):
            log_call(method.name, code, seconds, call.caller or call.peer, call.size, call.peer, facts)
        if call.trace:
            call.trace.end(code, facts)


@contextmanager
def ended_at_deadline(call: Call) -> Iterator[None]:
    """End a call at its deadline. gRPC's callers do that themselves, and others leave it to the server."""
    if call.timeout is None:
        yield
        return
    error = RequestTimeoutError(f"not answered within {call.timeout:g} seconds, the deadline of the call")
    timer = asyncio.get_running_loop().call_later(call.timeout, call.end, error)
    try:
        yield
    finally:
        timer.cancel()


async def _write(call: Call, transport: Transport, message: Any) -> None:
    """Send a message to the caller. RequestError: the server ends the call."""
    call.is_writing = True
    try:
        await transport.write(message)
    finally:
        call.is_writing = False
    if call.refusal:
        raise call.refusal


def _parsed(parse: Parse | None, message: bytes) -> Any:
    if parse is None:
        return message
    try:
        return parse(message)
    except DecodeError:  # its text would show the message
        violation = FieldViolation("request", "is not a message of this method: it cannot be parsed")
        raise InvalidRequestError(violation) from None
