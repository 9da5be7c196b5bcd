"""A stream holds up nobody, however its reader behaves."""

import time

import grpc
import pytest

from helpers.reliability import raw_http2
from helpers.reliability.cases import SENTENCES, single
from helpers.reliability.failures import failure_of
from helpers.reliability.raw_http2 import RawConnection
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(60)

LONGEST = 2  # the setting request_timeout [seconds]
LATEST = 10.0  # by when a call has ended [seconds]
GRACE = 1  # the setting grace_period [seconds]


@pytest.mark.slow
def test_a_stream_that_nobody_reads_holds_up_nobody(start, figures):
    """gRPC takes no status while a message waits for its reader, so the call keeps its place. It keeps no more."""
    request = pb.TranslateStreamRequest(text="".join(SENTENCES), options=pb.DecodingOptions(split_sentences=True))
    flags = (f"--request-timeout={LONGEST}", f"--grace-period={GRACE}")
    with start(*flags) as server, RawConnection(server.address, window=0) as connection:
        body = raw_http2.message(request.SerializeToString())
        connection.write(
            raw_http2.headers(1, connection.block(raw_http2.STREAM)) + raw_http2.data(1, body, end_stream=True)
        )
        began = time.monotonic()
        time.sleep(LONGEST)
        while (held := taken(server))["rows"] + held["waiting"] and time.monotonic() - began < LATEST:
            time.sleep(0.1)
        seconds = time.monotonic() - began
        other = ask_for_one(server.address)
        began = time.monotonic()
        exit_code = server.terminate()
        ending = time.monotonic() - began
    figures.add(**held, freed_after_s=seconds, other_call=other, exit_code=exit_code, ended_after_s=ending)
    assert held["rows"] == held["waiting"] == 0
    assert held["calls"] <= 1
    assert other == "OK"
    assert exit_code == 0


def taken(server):
    """What calls take of the server."""
    found = server.metrics()
    return {
        "calls": found["translane_open_calls"],
        "rows": sum(value for name, value in found.items() if name.startswith("translane_rows{") and "active" in name),
        "waiting": sum(value for name, value in found.items() if name.startswith("translane_sentences_waiting{")),
    }


def ask_for_one(address):
    """How another caller's call ends."""
    with grpc.insecure_channel(address) as channel:
        try:
            translation_pb2_grpc.TranslationServiceStub(channel).Translate(single().request, timeout=10)
        except grpc.RpcError as error:
            return failure_of(error).name
    return "OK"
