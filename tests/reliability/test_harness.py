"""The instruments themselves: an oracle that tells answers apart by their last bit, and trends that tell growth."""

import grpc
import pytest
from reliability.soak import Sample, trends

from helpers.reliability.cases import unary_answer
from helpers.reliability.resources import MEGABYTE
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(60)


@pytest.mark.slow
async def test_a_wrong_answer_is_noticed(shared_server, oracle):
    case, other = oracle.cases[0], oracle.cases[8]
    async with grpc.aio.insecure_channel(shared_server.address) as channel:
        response = await translation_pb2_grpc.TranslationServiceStub(channel).Translate(case.request)
    assert oracle.is_right(case, unary_answer(response))
    assert not oracle.is_right(other, unary_answer(response))
    response.translations[0].hypotheses[0].token_log_probs[0] *= 1 + 2**-23
    assert not oracle.is_right(case, unary_answer(response))


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
