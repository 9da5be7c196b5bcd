"""The gRPC port, called as gRPC calls it, and its options; what callers see of it is in integration/server."""

import logging

import grpc
import pytest

from fakes.serving import make_settings
from translane_server.api import grpc_port
from translane_server.api.answering import Answering
from translane_server.observation.metrics import Metrics


def options(**settings):
    return dict(grpc_port.options_of(make_settings(**settings), connections=100))


def make_port(**settings):
    metrics, made = Metrics(), make_settings(**settings)
    return grpc_port.GrpcPort(metrics, Answering(made), grpc_port.options_of(made, connections=1))


def test_a_full_request_of_long_sentences_fits_the_default():
    # the longest sentences take 256 tokens, and a token of common writings is at most 3 letters of 3 bytes on average
    assert make_settings().max_message_bytes >= 256 * 256 * 3 * 3 + 256 * 4


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
    await make_port(**settings).server.stop(None)


async def test_only_errors_that_say_something_are_logged(caplog):
    await make_port().server.stop(None)
    logger = logging.getLogger("grpc._cython.cygrpc")
    for error in (grpc.aio.InternalError("gone"), ValueError("a bug")):
        logger.error("failed", exc_info=error)
    logger.error("alone")
    assert [record.exc_info and type(record.exc_info[1]) for record in caplog.records] == [ValueError, None]
