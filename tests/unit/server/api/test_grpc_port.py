"""The limits of gRPC's core follow the settings."""

import logging

import grpc
import pytest

from fakes.serving import make_settings
from translane_server.api import grpc_port as port
from translane_server.api.open_calls import CallLimits
from translane_server.observation.metrics import Metrics


def test_the_limits_of_calls_have_the_defaults_of_the_settings():
    assert port.call_limits(make_settings()) == CallLimits()


def options(**settings):
    return dict(port._options(make_settings(**settings), connections=100))


def test_the_options_follow_the_settings():
    found = options(max_streams=7, max_calls=10, max_message_bytes=4096, max_connection_idle=2.5, request_timeout=3)
    assert found["grpc.max_concurrent_streams"] == 7
    assert found["grpc.max_allowed_incoming_connections"] == 100
    assert found["grpc.server.max_pending_requests"] == found["grpc.server.max_pending_requests_hard_limit"] == 40
    assert found["grpc.max_receive_message_length"] == 8192
    assert found["grpc.max_connection_idle_ms"] == 2500
    assert found["grpc.max_connection_age_grace_ms"] == 3000


@pytest.mark.parametrize(
    "settings",
    [
        {
            "max_calls": 2**20,
            "max_streams": 2**20,
            "max_message_bytes": 2**30,
            "max_bytes_in_flight": 2**40,
            "max_connection_idle": 2000000,
            "max_connection_age": 2000000,
            "request_timeout": 86400,
        },
        {"request_timeout": 1e-9},
    ],
)
async def test_grpc_takes_the_extreme_settings(settings):
    assert all(
        0 <= value < 2**31 for key, value in options(**settings).items() if key != "grpc.max_send_message_length"
    )
    server = port.grpc_server(make_settings(**settings), Metrics(), connections=1)
    assert isinstance(server, grpc.aio.Server)
    await server.stop(None)


def test_a_full_request_of_long_sentences_fits_the_default():
    # the longest sentences take 256 tokens, and a token of common writings is at most 3 letters of 3 bytes on average
    assert make_settings().max_message_bytes >= 256 * 256 * 3 * 3 + 256 * 4


async def test_only_errors_that_say_something_are_logged(caplog):
    server = port.grpc_server(make_settings(), Metrics(), connections=1)
    await server.stop(None)
    logger = logging.getLogger("grpc._cython.cygrpc")
    for error in (grpc.aio.InternalError("gone"), ValueError("a bug")):
        logger.error("failed", exc_info=error)
    logger.error("alone")
    assert [record.exc_info and type(record.exc_info[1]) for record in caplog.records] == [ValueError, None]
