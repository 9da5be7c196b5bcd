"""The instruments themselves: an oracle that never errs, a bystander, and raw frames that are a call."""

import grpc
import pytest

from helpers.reliability import raw_http2
from helpers.reliability.answers import unary_answer
from helpers.reliability.cases import single
from helpers.reliability.load import Load
from helpers.reliability.probe import bystander
from helpers.reliability.resources import MEGABYTE
from helpers.reliability.trends import Sample, trends
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(60)


@pytest.mark.slow
async def test_under_load_every_answer_is_the_undisturbed_one(shared_server, oracle, figures):
    with bystander(shared_server.address) as seen:
        async with Load(shared_server.address, oracle, callers=8, leaving=0.1) as load:
            await load.wait_for_answers(60)
    figures.add(**load.figures, **seen.figures)
    assert load.answered >= 60
    assert load.lost == 0
    assert not seen.failed


@pytest.mark.slow
async def test_a_wrong_answer_is_noticed(shared_server, oracle):
    case, other = oracle.cases[0], oracle.cases[8]
    async with grpc.aio.insecure_channel(shared_server.address) as channel:
        response = await translation_pb2_grpc.TranslationServiceStub(channel).Translate(case.request)
    assert oracle.is_right(case, unary_answer(response))
    assert not oracle.is_right(other, unary_answer(response))
    response.translations[0].hypotheses[0].token_log_probs[0] *= 1 + 2**-23
    assert not oracle.is_right(case, unary_answer(response))


def test_raw_frames_are_a_call(shared_server):
    with raw_http2.RawConnection(shared_server.address) as connection:
        block = connection.block()
        for stream in (1, 3):
            request = raw_http2.message(single(stream).request.SerializeToString())
            connection.write(raw_http2.headers(stream, block) + raw_http2.data(stream, request, end_stream=True))
        assert connection.wait_for_ends(2, seconds=20)
        assert connection.ended == {1: None, 3: None}
        connection.write(raw_http2.headers(5, block) + raw_http2.data(5, raw_http2.message(b""), end_stream=True))
        assert connection.wait_for_ends(3, seconds=20)
        failure = connection.ended[5]
        assert failure
        assert (failure.code, failure.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert failure.fields == ("texts",)


@pytest.mark.parametrize(
    ("name", "per_hour"),
    [
        ("memory of the server [MiB]", Sample(0, server=100 * MEGABYTE, replicas=0, files=0, threads=0)),
        ("memory of replicas [MiB]", Sample(0, server=0, replicas=200 * MEGABYTE, files=0, threads=0)),
        ("descriptors", Sample(0, server=0, replicas=0, files=60, threads=0)),
        ("threads", Sample(0, server=0, replicas=0, files=0, threads=30)),
    ],
)
def test_growth_is_noticed(name, per_hour):
    def sampled(growth):
        hours = [number / 100 for number in range(50)]
        base = Sample(0, server=100 * MEGABYTE, replicas=300 * MEGABYTE, files=80, threads=40)
        noise = [number % 3 for number in range(50)]
        return [
            Sample(
                3600 * hour,
                base.server + noisy * MEGABYTE + growth * hour * per_hour.server,
                base.replicas + noisy * MEGABYTE + growth * hour * per_hour.replicas,
                base.files + noisy + growth * hour * per_hour.files,
                base.threads + noisy + growth * hour * per_hour.threads,
            )
            for hour, noisy in zip(hours, noise, strict=True)
        ]

    assert [found for found, trend in trends(sampled(1.0)).items() if trend.is_growth] == [name]
    assert not any(trend.is_growth for trend in trends(sampled(0.0)).values())
    with pytest.raises(ValueError, match="too few"):
        trends(sampled(0.0)[:9])
