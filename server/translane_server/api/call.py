"""A call: who makes it, what is known of it from its arrival to its end, and what carries its messages."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn, Protocol
from urllib.parse import unquote

from google.rpc.status_pb2 import Status

from translane_server.access.authenticator import Allowance, Metadata, value_of
from translane_server.core.errors import RequestError
from translane_server.observation.metrics import Metrics, ModelMetrics
from translane_server.observation.tracing import CallTrace

# The header with the caller's own name of a request, which its line in the log and its answer have, too.
REQUEST_ID = "x-request-id"
_NAMES_OF_ID = (REQUEST_ID, REQUEST_ID.encode())  # gRPC's names of headers are texts, and those of ASGI are bytes
_REQUEST_ID = re.compile("[!-~]{1,128}")
Write = Callable[[Any], Awaitable[None]]

# Longest name of a caller [characters].
_LONGEST_NAME = 100

# IPv6 networks give each customer a /64 or more (RFC 6177), so an address alone does not stand for a caller.
_IPV6_PREFIX = 64

# Connections whose callers are remembered.
_REMEMBERED = 4096

# The names of a peer's certificate, as gRPC has them (grpc_security_constants.h).
_CERTIFICATE_NAMES = ("x509_subject_alternative_name", "x509_common_name")
_NO_NAME = b"other types of SAN"  # what gRPC writes for alternative names that it does not read, such as a UPN

# Calls of these services are traced, and logged at `info`. Probes and reflection would drown them.
_TRACED = "translane."

# The methods that ask models for something.
_OF_MODELS = tuple(
    f"translane.v1.TranslationService/{name}" for name in ("Translate", "TranslateStream", "TranslateDocument", "Score")
)

# The method that probes call. It is answered beside the limit of calls.
_PROBED = "grpc.health.v1.Health/Check"
# The method that reports every change of health, for as long as the caller wants. It has no longest time.
_ENDLESS = "grpc.health.v1.Health/Watch"
# The methods that need no key: who asks for the health of a server may have none.
_OPEN = (_PROBED, _ENDLESS)


def request_id_in(headers: Iterable[tuple[str | bytes, str | bytes]]) -> str:
    """The caller's own name of a request: 1 to 128 visible ASCII characters; "" if there is none such."""
    for name, value in headers:
        if name in _NAMES_OF_ID:
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            return text if _REQUEST_ID.fullmatch(text) else ""
    return ""


def caller_of(metadata: Metadata, certificate: str, peer: str, header: str = "") -> str:
    """Return the name of the caller of a call: what the header says, or else the certificate, or else the address.

    The header is in lower case. One that any client can set is no limit: a proxy in front of the server must set it.
    """
    if header and (text := value_of(metadata, header)):
        return _bounded(text)
    return _bounded(certificate) if certificate else caller_of_peer(peer)


def name_in_certificate(properties: Mapping[str, Iterable[bytes]]) -> str:
    """Return the first alternative name of a connection's certificate, or its common name; empty if it has neither."""
    for name in _CERTIFICATE_NAMES:
        for value in properties.get(name, ()):
            if value != _NO_NAME:
                return value.decode("utf-8", "replace")
    return ""


def _bounded(text: str) -> str:
    """A name of bounded length. A long text is cut, and a digest keeps it apart from others of the same beginning."""
    if len(text) <= _LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: _LONGEST_NAME - len(digest) - 1]}…{digest}"


@lru_cache(_REMEMBERED)
def caller_of_peer(peer: str) -> str:
    """Return the caller at the other end of a connection: `ipv4:ADDRESS:PORT`, `ipv6:%5BADDRESS%5D:PORT` or `unix:…`.

    It is an IPv4 address, the /64 network of an IPv6 address, or otherwise the kind of connection, such as `unix`.
    """
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    host = unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return kind
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
        address = address.ipv4_mapped
    return str(address)


class ToldError(Exception):
    """A call has failed, and its caller has been told."""


class Transport(Protocol):
    """Carries the messages of a call. If the caller has gone, it raises `asyncio.CancelledError`."""

    expansion: int  # how many bytes may stand for one byte of a message

    async def read(self) -> bytes | None:
        """Receive a message; None if there are no more."""

    async def write(self, message: Any, /) -> None:
        """Send a message, and wait until it is taken."""

    async def fail(self, status: Status, /) -> NoReturn:
        """End the call with an error. What this raises, such as `ToldError`, says that the call is answered."""


class Method:
    """What is the same for all calls of a method."""

    def __init__(
        self,
        metrics: Metrics,
        kind: str,  # as metrics name it
        service: str,  # its full name
        name: str,
        *,
        reads_many: bool = False,  # whether its handler gets all messages of the caller, as an iterator
        writes_many: bool = False,  # whether its handler gets a function that sends messages, and returns none
        protocol: str = "grpc",  # what carries its calls
    ) -> None:
        self.name = name
        self.protocol = protocol
        self.full_name = f"{service}/{name}"
        self.reads_many = reads_many
        self.writes_many = writes_many
        self.is_traced = service.startswith(_TRACED)
        self.log_level = logging.INFO if self.is_traced else logging.DEBUG
        self.is_probe = self.full_name == _PROBED
        self.is_endless = self.full_name == _ENDLESS
        self.needs_key = self.full_name not in _OPEN
        self.asks_models = self.full_name in _OF_MODELS
        self.rejected = metrics.rejected
        self.unrouted = metrics.unrouted
        self.metrics = metrics.of_method(kind, service, name)


@dataclass(slots=True, eq=False)
class Call:
    """An RPC in progress, whatever protocol it came by."""

    method: Method
    metadata: Metadata  # what the caller sent beside its messages, with names in lower case
    # gRPC's name of the other end of the caller's connection (https://github.com/grpc/grpc/blob/master/doc/naming.md)
    peer: str
    certificate: str = ""  # the name in the certificate of the caller's connection; empty if there is none
    # time from the call's arrival until the caller gives up [seconds]; None if it does not
    timeout: float | None = None
    request_id: str = ""  # the caller's own name of the request; "" if there is none that can be shown
    started: float = field(default_factory=time.monotonic)  # when the call arrived [seconds of `time.monotonic`]
    progressed: float = 0.0  # when a long call last got on [as `started`]; 0 if its time counts from its arrival
    trace: CallTrace | None = None  # the trace of the call; None if calls are not traced
    # what the call's span and its line in the log tell of it; None if it has neither
    facts: dict[str, Any] | None = None
    caller: str = ""  # who calls: the holder of its key, or the name under which its calls share their limits
    # what all calls with the caller's keys may ask for; None if callers need no keys
    allowance: Allowance | None = None
    paid: int = 0  # how many sentences of the allowance the call has taken
    size: int = 0  # bytes of the call's message, once it has come
    counted: Sequence[ModelMetrics] = ()  # where the call counts, by its models; empty as long as it has none
    accepted: float = 0.0  # when the message had come [as `started`]; 0 before
    task: asyncio.Task[Any] | None = None  # answers the call, once it is admitted
    refusal: RequestError | None = None  # why the server ends the call; None as long as it does not
    is_writing: bool = False  # whether a message is on its way to the caller. gRPC takes no status until it has gone
    code: str = "UNKNOWN"  # how the call ended: the name of gRPC's status code

    def note(self, **facts: Any) -> None:
        """Add `facts` to the call's line in the log and to its span."""
        if self.facts is not None:
            self.facts.update(facts)

    def count_in(self, models: Sequence[ModelMetrics]) -> None:
        """Count the call among the requests of these models, too."""
        self.counted = (*self.counted, *models)

    def pay(self, sentences: int, paid: int | None = None) -> None:
        """Take sentences from the allowance of the call's key, until the call ends. Raises as `Allowance.take`.

        `paid` are those that are paid for already and that the same rows need; by default all of the call.
        """
        if self.allowance:
            self.allowance.take(sentences, of_call=self.paid if paid is None else paid)
            self.paid += sentences

    def give_back(self, sentences: int) -> None:
        """Give sentences back to the allowance of the call's key before the call ends."""
        if self.allowance:
            self.allowance.give_back(sentences)
            self.paid -= sentences

    def progress(self) -> None:
        """Let the longest time of the call count from now on."""
        self.progressed = time.monotonic()

    def end(self, refusal: RequestError) -> None:
        """Make the call's task answer with `refusal`: at once, or when the message is written that is on its way."""
        self.refusal = refusal
        if self.task and not self.is_writing:
            self.task.cancel()
