"""A server with a cache answers as a server without one, over HTTP as over gRPC: the same bytes, the same errors."""

import asyncio
import logging
import random
from collections import Counter
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.rpc import status_pb2
from grpc_status import rpc_status

from fakes.backend import VOCAB_SIZE
from fakes.serving import FakeModel, FakeTokenizer, make_manifest, serving
from helpers.failures import failed
from helpers.http_calls import call, until
from helpers.key_files import bearer, holder, key_file
from helpers.real_server import serving_library
from helpers.tiny_bundle import put_bundle
from translane.v1 import translation_pb2 as pb
from translane_server.access.keys import make_token
from translane_server.observation.logs import PlainFormatter

CACHE = 1 << 20
TEXTS = [
    "", " ", "one", "two words", "a <b>bold</b> word", "one. Two! three?", "北京", "我们是大学。我爱北京。",
    "1. a\n2. b", "see https://a.b now", "{name} waits", "x" * 40, "alpha", "\u202e日本", "👩\u200d👧 one",
    "tab\tand\r\nline", "& < >",
]  # fmt: skip


# The oracle: a server without a cache


def random_options(pick):
    """Options that are often, but not always, right ones."""
    searches = [
        {},
        {},
        {"beam_size": pick.choice([1, 2, 4])},
        {"beam_size": 3, "num_hypotheses": pick.choice([1, 2, 3, 4]), "length_penalty": pick.choice([0.5, 2.0])},
        {"temperature": pick.choice([0.5, 3.0]), "seed": pick.choice([0, 7]), "num_hypotheses": pick.choice([1, 2])},
        {"top_k": 3, "top_p": 0.8, "seed": 2**64 - 1},
        {"return_alternatives": True, "num_hypotheses": 2},
    ]
    others = {
        "max_length": pick.choice([1, 4, 12, -1]),
        "min_length": pick.choice([0, 2]),
        "return_tokens": True,
        "return_token_scores": True,
        "return_alignment": True,
        "return_quality": True,
        "split_sentences": pick.random() < 0.5,
        "preserve_untranslatable": pick.random() < 0.5,
        "preserve": ["[0-9]+"],
        "replace_unknowns": True,
        "suppress_unknown": True,
        "suppressed_phrases": [pick.choice(["o", "zz"])],
        "target_prefix": pick.choice(["", "one"]),
        "terminology": [pb.Term(source="one", target=pick.choice(["two", "one"]))],
    }
    chosen = dict(pick.sample(sorted(others.items()), pick.choice([0, 0, 1, 2, 3])))
    return pb.DecodingOptions(**pick.choice(searches), **chosen)


def random_manner(pick, languages):
    fields = {"options": random_options(pick), **pick.choice(languages)}
    if pick.random() < 0.3:
        fields["format"] = pick.choice([pb.FORMAT_TEXT, pb.FORMAT_HTML, pb.FORMAT_MARKDOWN, pb.FORMAT_XLIFF])
    return fields


def random_requests(count, pick, texts, languages, manners):
    """Requests in a few manners, so that many texts come again in the same way."""
    known = [random_manner(pick, languages) for _ in range(manners)]
    for _ in range(count):
        fields = {**pick.choice(known), "priority": pick.choice([0, 1])}
        if pick.random() < 0.3:
            yield pb.TranslateStreamRequest(text=pick.choice(texts), **fields)
        else:
            yield pb.TranslateRequest(texts=pick.choices(texts, k=pick.randrange(1, 6)), **fields)


async def outcome(stub, request):
    """What a caller gets, without times: a serialized answer, or the status of an error."""
    try:
        if isinstance(request, pb.TranslateRequest):
            answer = await stub.Translate(request)
            answer.ClearField("timing")
            return answer.SerializeToString()
        messages = [message async for message in stub.TranslateStream(request)]
    except grpc.aio.AioRpcError as error:
        return rpc_status.from_call(error)  # type: ignore[arg-type]  # has what it needs
    last = messages[-1]
    last.ClearField("timing")
    last.text_delta = "".join(message.text_delta for message in messages)
    return last.SerializeToString()


async def over_http(port, request, *, snake):
    """What `outcome` returns, asked for in JSON whose names are as in the protocol, or in camel case."""
    name = "Translate" if isinstance(request, pb.TranslateRequest) else "TranslateStream"
    got = await call(port, name, json_format.MessageToDict(request, preserving_proto_field_name=snake))
    if got.status != 200:
        return json_format.ParseDict(got.json, status_pb2.Status())
    answer: pb.TranslateResponse | pb.TranslateStreamResponse
    if name == "Translate":
        answer = json_format.Parse(got.body, pb.TranslateResponse())
    else:
        parts = [json_format.Parse(line, pb.TranslateStreamResponse()) for line in got.body.splitlines()]
        answer = parts[-1]
        answer.text_delta = "".join(part.text_delta for part in parts)
    answer.ClearField("timing")
    return answer.SerializeToString()


async def compare(stub, cached_stub, requests, http_port=0):
    """Ask both servers the same, and return how many answers were right and how many requests were refused."""
    waiting = iter(requests)
    found: Counter[str] = Counter()

    async def ask():
        for number, request in enumerate(waiting):
            expected = await outcome(stub, request)
            assert await outcome(cached_stub, request) == expected, request
            if http_port and number % 3 == 0:
                assert await over_http(http_port, request, snake=number % 2 == 0) == expected, request
            found["answered" if isinstance(expected, bytes) else "refused"] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(ask())
    return found


def value(running, name, **labels):
    return running.value(name, model="fake", **labels)


def lookups(running):
    return tuple(value(running, "translane_cache_texts_total", outcome=outcome) for outcome in ("hit", "miss"))


class _Tokenizer(FakeTokenizer):
    """Decodes every token: searches find tokens that the fake backend finds improbable."""

    def __init__(self) -> None:
        super().__init__()
        self._characters = dict.fromkeys(range(VOCAB_SIZE), "?") | self._characters


@pytest.mark.slow
@pytest.mark.parametrize("size", [CACHE, 20_000])
async def test_thousands_of_random_requests_have_the_same_answers(size):
    """A small cache forgets most answers, and a large one knows most texts."""
    pick = random.Random(size)
    requests = [*random_requests(600, pick, TEXTS, [{}, {"source_language": "zh"}, {"target_language": "xx"}], 40)]
    changes: dict[str, Any] = {"rows": 16, "model": FakeModel(make_manifest(), _Tokenizer()), "max_queue_size": 1000}
    async with serving(**changes) as plain, serving(**changes, cache_bytes=size, http_port=0) as cached:
        for running in (plain, cached):
            running.backend.takes_others = True
        found = await compare(plain.stub, cached.stub, requests, cached.server.http_port)
        hits, misses = lookups(cached)
        assert value(cached, "translane_cache_bytes") <= size
        assert (value(cached, "translane_cache_evictions_total") > 0) == (size < CACHE)
    assert found["answered"] > 200
    assert found["refused"] > 40
    assert hits > (0.5 if size == CACHE else 0.1) * misses


@pytest.mark.slow
async def test_a_model_and_a_third_language_give_the_same_answers(tmp_path):
    for source, target in (("zh", "en"), ("en", "fr")):
        put_bundle(tmp_path / f"{source}-{target}", source_languages=[source], target_languages=[target])
    texts = ["我有一只猫。", "你好", "", "谢谢！再见。", "他 <b>好</b> {name}", "明天會下雨嗎？我在 https://a.b 等你"]
    languages = [
        {"source_language": "zh", "target_language": "en"},
        {"source_language": "zh", "target_language": "fr"},
        {"source_language": "auto", "target_language": "en"},
    ]
    requests = [*random_requests(300, random.Random(5), texts, languages, 25)]
    for request in requests:
        request.options.max_length = 5
    async with (
        serving_library(tmp_path) as plain,
        serving_library(tmp_path, cache_bytes=CACHE) as cached,
    ):
        found = await compare(plain.stub, cached.stub, requests)
        again = pb.TranslateRequest(texts=["你好", "谢谢"], source_language="auto", target_language="fr")
        counts = [(await cached.stub.Translate(again)).timing.cached_texts for _ in range(2)]
        stream = pb.TranslateStreamRequest(text="谢谢", source_language="zh", target_language="fr")
        messages = [message async for message in cached.stub.TranslateStream(stream)]
    assert found["answered"] > 100
    assert counts == [0, 2]
    assert [message.timing.cached_texts for message in messages] == [1]
    assert messages[0].treatment.pivot_language == "en"


# What a known text is


def texts_of(response):
    return [translation.hypotheses[0].text for translation in response.translations]


async def test_samples_without_a_seed_are_drawn_each_time():
    request = pb.TranslateRequest(texts=["one"], options={"temperature": 0.5})
    async with serving(cache_bytes=CACHE) as running:
        for _ in range(2):
            assert (await running.stub.Translate(request)).timing.cached_texts == 0
        assert value(running, "translane_source_tokens_total") == 2 * (len("one") + 1)
        assert lookups(running) == (0, 0)


async def test_a_caller_who_goes_away_leaves_nothing():
    async with serving(cache_bytes=CACHE) as running:
        running.backend.hold()
        calls = [
            running.stub.Translate(pb.TranslateRequest(texts=["one"])),
            running.stub.TranslateStream(pb.TranslateStreamRequest(text="two")),
        ]
        await until(lambda: running.dispatcher.active_rows == 2)
        for each in calls:
            each.cancel()
        running.backend.release()
        await until(lambda: running.model.users == 0)
        assert lookups(running) == (0, 0)
        assert value(running, "translane_cache_entries") == 0


async def test_known_texts_need_no_place_in_the_queue():
    async with serving(cache_bytes=CACHE, rows=1, max_request_texts=8, max_queue_size=8) as running:
        await running.stub.Translate(pb.TranslateRequest(texts=["one", "two"]))
        running.backend.hold()
        running.backend.step_started.acquire(blocking=False)
        waiting = asyncio.ensure_future(running.stub.Translate(pb.TranslateRequest(texts=[*"abcdefgh"])))
        await until(lambda: running.dispatcher.waiting >= 5)
        refused = running.stub.Translate(pb.TranslateRequest(texts=["two", *"ijklmno"]))
        assert (await failed(refused)).reason == "QUEUE_FULL"
        known = await running.stub.Translate(pb.TranslateRequest(texts=["two", "one"]), timeout=20)
        assert texts_of(known) == ["two", "one"]
        assert not waiting.done()
        running.backend.release()
        assert texts_of(await waiting) == [*"abcdefgh"]


# Whose it is, and how long it is there


@pytest.mark.parametrize("shared", [False, True])
async def test_holders_of_keys_find_their_own_translations(tmp_path, shared):
    tokens = [make_token() for _ in range(3)]
    keys = key_file(tmp_path, one=holder(*tokens[:2]), other=holder(tokens[2]))
    request = pb.TranslateRequest(texts=["one", "two"])
    async with serving(cache_bytes=CACHE, cache_shared=shared, keys_file=keys) as running:
        counts = []
        for token in tokens:
            counts.append((await running.stub.Translate(request, metadata=bearer(token))).timing.cached_texts)
        assert running.value("translane_key_sentences_total", key="") == 6  # known texts, too
    assert counts == [0, 2, 2 if shared else 0]


async def test_a_known_text_counts_as_one_sentence_of_its_key(tmp_path):
    token = make_token()
    keys = key_file(tmp_path, one=holder(token, sentences_in_flight=3))
    text = "One. Two. Three."
    async with serving(cache_bytes=CACHE, keys_file=keys) as running:
        await running.stub.Translate(pb.TranslateRequest(texts=[text]), metadata=bearer(token))
        answer = await running.stub.Translate(pb.TranslateRequest(texts=[text] * 3), metadata=bearer(token))
        assert answer.timing.cached_texts == 3
        refused = running.stub.Translate(pb.TranslateRequest(texts=[text] * 4), metadata=bearer(token))
        assert "its key may have 3 in flight" in (await failed(refused)).message


@pytest.mark.slow
async def test_a_version_that_is_replaced_or_unloaded_takes_its_translations_with_it(tmp_path):
    put_bundle(tmp_path / "zh-en" / "1", decoding_defaults={"max_length": 2})
    request = pb.TranslateRequest(texts=["我有一只猫。", "你好"])
    async with serving_library(tmp_path, cache_bytes=CACHE) as running:
        model: Any = running.server.models.models["zh-en"]

        async def answers_and_entries():
            found = [await running.stub.Translate(request) for _ in range(2)]
            store = model.ready.translator.cache.store
            assert [each.timing.cached_texts for each in found] == [0, 2]
            assert len(store) == running.value("translane_cache_entries", model="zh-en") == 2
            assert texts_of(found[0]) == texts_of(found[1])
            return texts_of(found[0]), store

        old, of_the_old = await answers_and_entries()
        put_bundle(tmp_path / "zh-en" / "2", decoding_defaults={"max_length": 4})
        assert await model.reload()
        new, of_the_new = await answers_and_entries()
        assert new != old
        await model.unload()
        assert len(of_the_old) == len(of_the_new) == 0
        assert running.value("translane_cache_entries", model="zh-en") is None
        await model.load()
        assert (await answers_and_entries())[0] == new
        assert running.value("translane_cache_texts_total", model="zh-en", outcome="miss") == 6


async def test_the_log_has_counts_and_no_texts(caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(cache_bytes=CACHE) as running:
        for _ in range(2):
            await running.stub.Translate(pb.TranslateRequest(texts=["a secret word", "another secret"]))
    lines = [PlainFormatter().format(record) for record in caplog.records]
    assert [line.split("cached_texts=")[1][0] for line in lines if "cached_texts=" in line] == ["0", "2"]
    assert not any("secret" in line for line in lines)
