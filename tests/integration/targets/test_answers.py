"""What the client gets of a service, by every method and with every option, is right to the bit."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from helpers.client_calls import CALLS, ask, ask_async
from helpers.reliability.cases import SENTENCES
from translane import AsyncClient, Client, DecodingOptions, FinishReason

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]  # Ray takes minutes to start on a busy machine

MANY = [f"{first}{second}" for first, second in itertools.product(SENTENCES, SENTENCES[:5])]


def test_every_option_is_asked_for():
    asked = set().union(*(call.options for call in CALLS))
    assert set(DecodingOptions.__annotations__) - asked == {"use_shortlist"}


def test_calls_of_all_kinds_beside_each_other(target, expected):
    calls = [*CALLS, *reversed(CALLS)]
    with Client(target.address, timeout=120) as client, ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda call: ask(client, call), calls))
    assert answers == [expected(call) for call in calls]


async def test_tasks_of_all_kinds_beside_each_other(target, expected):
    async with AsyncClient(target.address, timeout=120) as client:
        answers = await asyncio.gather(*(ask_async(client, call) for call in CALLS))
    assert answers == [expected(call) for call in CALLS]


@pytest.mark.parametrize("batch_size", [None, 7])
def test_a_long_list_is_answered_in_its_order(connect, undisturbed, batch_size):
    translations = connect(batch_size=batch_size).translate(MANY, return_token_scores=True)
    wanted = undisturbed.translate(MANY, return_token_scores=True)
    assert [replace(each, timing=None) for each in translations] == [replace(each, timing=None) for each in wanted]


def test_a_translation_scores_as_it_was_decoded(client):
    text = SENTENCES[2]
    translation = client.translate(text, return_token_scores=True, return_tokens=True, max_length=200)
    assert translation.hypotheses[0].finish_reason is FinishReason.END_OF_SENTENCE
    (score,) = client.score([(text, translation.text)], return_tokens=True)
    assert score.tokens == translation.hypotheses[0].tokens
    assert score.total_log_prob == pytest.approx(translation.score, rel=1e-4)


def test_where_the_time_went_is_told(client):
    timing = client.translate(SENTENCES[5]).timing
    assert 0 < timing.decode <= timing.total
    assert timing.cached_texts == 0
    stream = client.translate_stream(SENTENCES[5])
    assert list(stream)
    assert stream.result.timing.total > 0


def test_the_service_describes_itself(client, undisturbed):
    info = client.server_info()
    assert info == undisturbed.server_info()
    assert client.models() == list(info.models)
    (model,) = info.models
    assert (model.name, model.source_languages, model.target_languages) == ("zh-en", ("zh",), ("en",))
    assert model.glossaries == ("pets",)
