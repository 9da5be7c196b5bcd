"""The gRPC port: gRPC's server with its limits of connections, streams, times and sizes."""

from __future__ import annotations

import logging

import grpc

from translane_server.access.key_ring import KeyRing
from translane_server.observation.call_trace import Tracer
from translane_server.observation.metrics import Metrics
from translane_server.rpc.callers import caller_naming
from translane_server.rpc.forwarded import Forwarding, peer_of_connection
from translane_server.rpc.interceptors import CallInterceptor
from translane_server.rpc.open_calls import CallLimits
from translane_server.settings import ServerSettings

# A message up to this many times `max_message_bytes` is received and refused with a reason. gRPC refuses a larger one
# itself, before it is received, and without a reason.
_RECEIVED_MESSAGES = 2

# Where more calls wait to be accepted than this many times `max_calls`, gRPC cancels calls without a reason. Up to
# there, the server refuses calls itself, with a reason.
_WAITING_CALLS = 4

# Streams of a connection that have ended for the client, and that the server has not taken down yet.
_ENDING_STREAMS = 128

# The server asks a silent connection for a sign of life after `_KEEPALIVE`, and closes it after `_KEEPALIVE_TIMEOUT`
# without one. A client may ask every `_LEAST_PING_INTERVAL`; one that asks more often is disconnected [seconds].
_KEEPALIVE, _KEEPALIVE_TIMEOUT = 60, 20
_LEAST_PING_INTERVAL = 9  # clients ask every 10 seconds or less often, by their own clocks

# Longest time from a connection to HTTP/2's first frames [seconds].
_HANDSHAKE_TIME = 10

# Largest metadata of a call [bytes].
_METADATA_BYTES = 16 * 1024

# The logger of gRPC's asynchronous server. It writes a traceback whenever a caller goes away before an answer is sent.
_GRPC_LOGGER = "grpc._cython.cygrpc"


def grpc_server(
    settings: ServerSettings,
    metrics: Metrics,
    connections: int,
    *,
    tracer: Tracer | None = None,
    keys: KeyRing | None = None,
    forwarding: Forwarding | None = None,
) -> grpc.aio.Server:
    """Return a gRPC server that has neither services nor ports yet.

    Args:
        settings: settings of the server.
        metrics: takes what is counted and timed of each call.
        connections: most connections.
        tracer: begins the spans of calls; None if calls are not traced.
        keys: the keys that callers need; None if they need none.
        forwarding: tells whose the calls of the HTTP port are; None without an HTTP port.
    """
    logging.getLogger(_GRPC_LOGGER).addFilter(_is_news)
    naming = caller_naming(settings.caller_header, certified=settings.tls_client_ca is not None)
    if forwarding:
        naming = forwarding.naming(naming)
    peer_of = forwarding.peer if forwarding else peer_of_connection
    interceptor = CallInterceptor(metrics, call_limits(settings), naming, tracer=tracer, keys=keys, peer_of=peer_of)
    calls = interceptor.open_calls
    metrics.watch_calls(lambda: calls.count, lambda: calls.size, settings.max_calls)
    return grpc.aio.server(interceptors=[interceptor], options=_options(settings, connections))


def call_limits(settings: ServerSettings) -> CallLimits:
    """The limits of open calls that `settings` give."""
    return CallLimits(
        calls=settings.max_calls,
        message_bytes=settings.max_message_bytes,
        bytes_in_flight=settings.max_bytes_in_flight,
        caller_share=settings.caller_share,
        message_timeout=settings.message_timeout,
        request_timeout=settings.request_timeout,
    )


def largest_received(settings: ServerSettings) -> int:
    """The largest message that the port receives [bytes]. gRPC refuses a larger one without a reason."""
    return min(_RECEIVED_MESSAGES * settings.max_message_bytes, 2**31 - 1)


def _options(settings: ServerSettings, connections: int) -> list[tuple[str, int]]:
    """The options of gRPC's core: https://grpc.github.io/grpc/core/group__grpc__arg__keys.html."""
    waiting = min(_WAITING_CALLS * settings.max_calls, 2**31 - 1)
    return [
        # With 1, a second server could share the port, and would get some of the requests.
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIME * 1000),
        ("grpc.max_concurrent_streams", settings.max_streams),
        ("grpc.http2.max_deallocating_streams", _ENDING_STREAMS),
        ("grpc.server.max_pending_requests", waiting),
        ("grpc.server.max_pending_requests_hard_limit", waiting),
        ("grpc.max_receive_message_length", largest_received(settings)),
        ("grpc.max_send_message_length", -1),
        # Without probes, gRPC takes 64 KiB of a message before the call has its turn to receive, and not megabytes.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE * 1000),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_INTERVAL * 1000),
        ("grpc.max_connection_idle_ms", _milliseconds(settings.max_connection_idle)),
        ("grpc.max_connection_age_ms", _milliseconds(settings.max_connection_age)),
        ("grpc.max_connection_age_grace_ms", _milliseconds(settings.request_timeout)),
    ]


def _milliseconds(seconds: float) -> int:
    return max(1, min(round(seconds * 1000), 2**31 - 1))


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record of gRPC's says more than that a caller has gone."""
    return record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError)
