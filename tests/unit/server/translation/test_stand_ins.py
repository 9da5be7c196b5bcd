"""Stand-ins in the place of what is kept, over a backend without a model that copies a text, or parts of it."""

import itertools
import re
import threading
from collections import defaultdict
from contextlib import aclosing, asynccontextmanager

import pytest

from fakes.backend import EOS, OFFSET, FakeBackend
from fakes.replicas import fake_replica
from fakes.serving import FakeTokenizer, make_manifest
from translane.options import Format, checked_options
from translane.requests import TranslationRequest
from translane_server.core.errors import EngineError, QueueFullError
from translane_server.observation.metrics import Metrics
from translane_server.text.numbers import certain_numbers, missing_numbers, written_for
from translane_server.text.stand_ins import NamesAndNumbers
from translane_server.translation.cache import TranslationCache
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translator import Translator
from translane_server.workers.dispatcher import Dispatcher

NARROW = str.maketrans("１２３４５６，．", "123456,.")
SYMBOLS = {900 + number: f"⟨{number}⟩" for number in (1, 2, 3)}  # by their source ids


class WithStandIns(FakeTokenizer):
    """Has a token for each symbol: within, the symbol is one character of Unicode's private use."""

    def __init__(self):
        super().__init__()
        self._ids |= {_character(symbol): token for token, symbol in SYMBOLS.items()}
        self._characters |= {token + OFFSET: symbol for token, symbol in SYMBOLS.items()}
        self._characters = defaultdict(str, self._characters)  # beams try tokens that are no characters

    def stand_ins(self, symbols):
        assert tuple(symbols) == tuple(SYMBOLS.values())
        return {token + OFFSET: symbol for token, symbol in SYMBOLS.items()}

    def encode(self, texts):
        return super().encode(_with_characters(texts))

    def encode_target(self, texts):
        return super().encode_target(_with_characters(texts))

    def source_spans(self, text):
        return [*(match.span() for match in re.finditer("⟨[1-3]⟩|.", text)), None] if text.strip() else []


def _with_characters(texts):
    return [re.sub("⟨[1-3]⟩", lambda match: _character(match[0]), text) for text in texts]


def _character(symbol):
    return chr(0xE000 + int(symbol[1]))


class Copying(FakeBackend):
    """Writes the source, and takes other tokens, as beams feed them.

    A careless one writes "x" for a stand-in and for "7", unless it must write them, and ⟨1⟩ for each "d". A rambling
    one does not end what has a stand-in.
    """

    def __init__(self, *, careless=False, rambling=False):
        super().__init__(rows=8, source_capacity=64, target_capacity=64)
        self.takes_others, self._is_careless, self._is_rambling = True, careless, rambling

    def predict(self, source, fed):
        logits, _, attention = super().predict(source, fed)
        ((x, d, seven),) = FakeTokenizer().encode_target(["xd7"])
        best = int(logits.argmax())
        if self._is_careless and best == d:
            logits[d], logits[901 + OFFSET] = -60, logits[d]
        elif self._is_careless and (best - OFFSET in SYMBOLS or best == seven):
            logits[x] = logits[best] + 0.1
        if self._is_rambling and logits.argmax() == EOS and any(token - OFFSET in SYMBOLS for token in fed):
            logits[EOS], logits[d - 1] = -60, logits[EOS]
        return logits, logits, attention


def careless():
    return Copying(careless=True)


@asynccontextmanager
async def serving(backend, symbols=SYMBOLS, cache=None, metrics=None, tokenizer=None):
    limits = RequestLimits(8, 8, TokenLimits(64, 64, 64), max_beam_size=6)
    manifest = make_manifest(stand_ins=[*symbols.values()])
    engine = Dispatcher([fake_replica(backend)], waiting_limit=8)
    metrics = metrics or Metrics().of_model("m")
    tokenizer, pool = tokenizer or WithStandIns(), TokenizerPool()
    await engine.start()
    try:
        yield Translator("m", manifest, tokenizer, limits, engine, pool, metrics, cache=cache)
    finally:
        pool.stop()
        await engine.stop()


async def translated(backend, text, *, streamed=False, markup=Format.TEXT, options=None, **more):
    serves = {name: more.pop(name) for name in ("symbols", "cache", "metrics") if name in more}
    async with serving(backend, **serves) as made:
        asked = checked_options({**(options or {}), **more})
        request = TranslationRequest([text], options=asked, streamed=streamed, format=markup)
        if not streamed:
            (found,) = (await made.translate(request)).translations
            return found.text, found.treatment
        async with aclosing(made.stream(request)) as stream:
            parts = [part async for part in stream]
        end = parts[-1].translation
        assert end
        assert "".join(part.text for part in parts) == end.text
        return end.text, end.treatment


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("options", [{}, {"beam_size": 3}, {"top_k": 1, "seed": 1}, {"replace_unknowns": True}])
async def test_what_is_kept_comes_back_at_its_stand_in(options, streamed):
    backend = Copying()
    seen: list[list[int]] = []
    encode = backend.encode_ahead
    backend.encode_ahead = lambda sources: (seen.extend(map(list, sources)), encode(sources))[1]
    text = "日本語 {x} 是 iPhone 15 大学 1987 ok"
    found, treatment = await translated(backend, text, streamed=streamed, **options)
    assert found == text
    assert (treatment.stand_ins, treatment.decoded_again) == (3, 0)
    digits = set(FakeTokenizer().encode(["0123456789"])[0][:-1])
    assert seen
    assert not digits & {token for source in seen for token in source}


@pytest.mark.parametrize(
    ("text", "stand_ins"),
    [
        ("爱 ⟨1⟩ ok {x} a", 2),  # what the caller writes is none of the model's
        ("爱 ⟨1⟩ ok ⟨1⟩ a ⟨2⟩ b", 3),
        ("a {a} b {b} c {c} e {e} f", 3),  # more than there are symbols
        ("<b>爱 {x} ok</b>", 1),
        ("爱 25 5 1 ok", 2),
        ("爱 2nd ok", 1),
        ("{x}", 0),  # nothing to translate
        ("GPT-4 1987", 0),
        ("爱 ok! 北京 {x} 是.", 1),
        ("爱 １２，３４５．６ ok", 1),  # comes back as a usual one
    ],
)
async def test_whatever_is_kept_is_there_once(text, stand_ins):
    found, treatment = await translated(Copying(), text)
    assert found == text.translate(NARROW)
    assert (treatment.stand_ins if treatment else 0) == stand_ins


async def test_without_rules_a_stand_in_of_the_caller_is_text():
    assert await translated(Copying(), "爱 ⟨1⟩ ok 1987", preserve_untranslatable=False) == ("爱 ⟨1⟩ ok 1987", None)


@pytest.mark.parametrize("text", ["爱 {y} ok", "爱 {y} dddd"], ids=["lacks", "doubles"])
async def test_a_sentence_that_lacks_or_doubles_a_stand_in_is_decoded_again_with_beams_that_write_it_once(text):
    found, treatment = await translated(careless(), text)
    assert found.count("{y}") == 1
    assert found == text or "dd" in text
    assert (treatment.stand_ins, treatment.decoded_again) == (1, 1)


@pytest.mark.parametrize(("is_careless", "steps"), [(False, 130), (True, 50)])
async def test_what_runs_on_for_a_stand_in_is_decoded_without(is_careless, steps):
    """A default bounds the first decoding to 64 tokens; the second one is cut off earlier."""
    backend = Copying(careless=is_careless, rambling=True)
    text, treatment = await translated(backend, "爱 {y} ok")
    assert (text, treatment.stand_ins) == ("爱 {y} ok", 0)
    assert len(backend.step_rows) < steps


async def test_what_a_stream_lacks_comes_at_its_end_where_the_model_would_run_on_after_it():
    backend = Copying(careless=True, rambling=True)
    text, treatment = await translated(backend, "爱 {y} ok", streamed=True)
    assert (text, treatment.decoded_again) == ("爱 x ok {y}", 1)
    assert len(backend.step_rows) < 40


@pytest.mark.parametrize(
    ("text", "expected"), [("爱 {y} ok 是", "爱 {y} ok 是"), ("爱 1987 ok 2047", "爱 x ok x 1987 2047")]
)
async def test_samples_that_lack_a_stand_in_are_decoded_without_unless_that_loses_more(text, expected):
    found, treatment = await translated(careless(), text, top_k=1, seed=1, num_hypotheses=2)
    assert (found, treatment.decoded_again) == (expected, 1)


async def test_a_stream_goes_on_with_what_it_lacks_and_repeats_nothing():
    text, treatment = await translated(careless(), "爱 {y} ok", streamed=True)
    assert text.startswith("爱 x o")
    assert text.count("{y}") == 1
    assert treatment.decoded_again == 1
    text, treatment = await translated(careless(), "d爱 {y} d ok", streamed=True)
    assert text == "{y}爱 x  ok"


@pytest.mark.parametrize(
    ("source", "options", "again"),
    [("爱 1987 ok", {}, 1), ("爱 1987 ok", {"beam_size": 4}, 0), ("爱 7777 7727 ok", {"beam_size": 4}, 1)],
)
async def test_a_number_that_is_missing_is_looked_for_in_the_other_beams_and_then_required(source, options, again):
    text, treatment = await translated(careless(), source, symbols={}, check_numbers=True, **options)
    assert text == source
    assert (treatment.decoded_again if treatment else 0) == again
    text, treatment = await translated(careless(), source, symbols={}, **options)
    assert text == source.replace("7", "x")
    assert treatment is None


@pytest.mark.parametrize("options", [{}, {"top_k": 1, "seed": 1, "num_hypotheses": 2}])
@pytest.mark.parametrize("error", [QueueFullError("the queue is full", 1.0), EngineError("a step has failed")])
async def test_what_is_kept_is_there_where_nothing_can_be_decoded_again(options, error, monkeypatch):
    """With required stand-ins, or, where several samples are wanted, without stand-ins. It is not remembered."""
    decode, calls = Dispatcher.decode, itertools.count(1)

    async def decode_once(self, *args, **kwargs):
        if next(calls) > 1:
            raise error
        return await decode(self, *args, **kwargs)

    monkeypatch.setattr(Dispatcher, "decode", decode_once)
    cache = TranslationCache(100_000)
    text, _ = await translated(careless(), "爱 {x} d ok d 是", cache=cache, **options)
    assert next(calls) == 3
    assert "{x}" in text
    assert len(cache.store) == 0


@pytest.mark.parametrize(
    ("text", "options", "streamed", "is_kept"),
    [
        ("爱 {y} ok", {}, False, True),
        ("爱 {y} ok", {}, True, False),  # a request that is no stream gets another one
        ("爱 是", {}, True, True),
        ("爱 1987 ok", {"check_numbers": True}, False, True),
        ("爱 1987 ok", {"check_numbers": True}, True, False),
        ("爱 1986 ok", {"check_numbers": True}, True, True),
    ],
)
async def test_a_translation_is_remembered_if_every_request_gets_it(text, options, streamed, is_kept):
    cache = TranslationCache(100_000)
    symbols = {} if options else SYMBOLS
    await translated(careless(), text, streamed=streamed, cache=cache, symbols=symbols, **options)
    assert len(cache.store) == is_kept


async def test_parts_on_both_sides_of_a_tag_have_stand_ins_of_their_own():
    text = "爱 /usr/<b>local/lib</b> ok"
    found, treatment = await translated(Copying(), text, markup=Format.HTML)
    assert found == text
    assert treatment.stand_ins == 2


@pytest.mark.parametrize("phrase", ["⟨1⟩", "⟨", "a ⟨2⟩"])
async def test_a_stand_in_that_the_caller_forbids_is_not_used(phrase):
    text, treatment = await translated(Copying(), "爱 {x} ok", suppressed_phrases=[phrase])
    assert text == "爱 {x} ok"
    assert (treatment.stand_ins, treatment.decoded_again) == (0, 0)


@pytest.mark.parametrize(
    ("phrase", "stand_ins"),
    [
        ("Apple", 1),
        ("pple W", 1),
        ("2024", 1),
        ("in 2024.", 1),
        ("Watch is", 1),
        ("his Apple", 1),
        ("hot", 2),  # begins as the name ends, but a stand-in is no part of a word
        ("apple", 2),
    ],
)
async def test_a_name_or_number_that_may_be_of_a_forbidden_phrase_has_no_stand_in(phrase, stand_ins):
    _, treatment = await translated(Copying(), "爱 Apple Watch ok 2024 是", suppressed_phrases=[phrase])
    assert (treatment.stand_ins if treatment else 0) == stand_ins


@pytest.mark.parametrize("streamed", [False, True])
async def test_tokens_of_second_decodings_count(streamed):
    metrics = Metrics().of_model("m")
    text, _ = await translated(careless(), "爱 {y} ok", streamed=streamed, metrics=metrics)
    once = len(text) + 1
    assert metrics.generated_tokens.value > 2 * once


async def test_threads_search_the_texts_of_many_hypotheses_for_numbers():
    searching = set()

    class Watched(WithStandIns):
        def decode(self, *args):
            searching.add(threading.current_thread().name)
            return super().decode(*args)

    texts = ["爱 1987 " + "ok" * 20] * 8
    request = TranslationRequest(texts, options=checked_options({"check_numbers": True, "beam_size": 6}))
    async with serving(Copying(), {}, tokenizer=Watched()) as made:
        found = await made.translate(request)
    assert [each.text for each in found.translations] == texts
    assert searching == {"texts"}


async def test_a_number_that_does_not_arrive_is_reported():
    options = {"check_numbers": True, "max_length": 2}
    text, treatment = await translated(careless(), "爱 1987 ok", symbols={}, **options)
    assert text == "爱 "
    assert treatment.missing_numbers == 1
    text, treatment = await translated(careless(), "爱 1987 ok", symbols={}, streamed=True, check_numbers=True)
    assert text == "爱 198x ok"
    assert treatment.missing_numbers == 1


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ("我出生于1987年。", "born in 1988", ["1987"]),
        ("我出生于1987年。", "born in '87 or 1987", []),
        ("价格是25.50美元。", "5 dollars", ["25.50"]),
        ("价格是25.50美元。", "25.5 dollars, 25,50 Euro", []),
        ("1,234本书", "1234 or 1.234 or 1 234", []),
        ("1,234本书", "12 or 34", ["1,234"]),
        ("在39.90421和1,234.5678之间，共3141。", "3.14159", ["39.90421", "1,234.5678", "3141"]),
        ("１２３４元", "1234", []),
        ("１，２３４．５元", "1,234.5", []),
        ("１，２３４．５元", "1,234", ["1,234.5"]),
        ("１２３：４５，图1：2024年", "none", ["2024"]),
        ("在1234，5678之间，共1357．人", "between 1234, 5678: 1357", []),
        ("编号1234，567个", "No. 1234, 567 of them", []),
        ("型号１２３Ａ", "none", []),
        ("3.5万人，300人，1000元，12月，25个，15:30，第125，A123，123a，2024-05-01", "none", []),
        ("¥1234。123.0", "1,234 and 123", []),
        ("3×10⁸，①②③，25½，文献¹²³", "none", []),
        ("⟨1⟩有123", "⟨2⟩ 123", []),
        ("1" + "0" * 5000 + "1", "none", []),
    ],
)
def test_numbers_that_a_translation_certainly_lacks(source, translation, missing):
    assert missing_numbers(certain_numbers(source), translation) == missing


def test_a_number_is_required_as_the_target_writes_it():
    assert written_for("1,234.5", "zh", "en") == "1,234.5"
    assert written_for("1,234.5", "zh", "de") == "1.234,5"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("他用GPT-4和iPhone 15看RFC 9110", ["GPT-4", "iPhone 15", "RFC 9110"]),
        ("John Smith说ok，A和B", ["John Smith"]),
        ("1987年有1,234.5元，１２３４", ["1987", "1,234.5", "1234"]),
        ("3.5万，1000多，第100，12月，1.2.3，25，7，0，1", ["1000", "25", "7"]),
        ("8:30，25.50美元，1" + "0" * 30, ["8:30", "25.50"]),
        ("2-5天，35–40公里，2024-05-01，3-10万，第3-5章，4:41.30分", ["2-5", "35–40", "2024-05-01", "4:41.30"]),
        ("500日元，15日，10日本人", ["500", "10"]),
        ("价格为１２，３４５元，１２３，４５６．７公斤", ["12,345", "123,456.7"]),
        ("１５：３０到16：45，他说：2024，１９８７", ["15:30", "16:45", "2024", "1987"]),
        ("１．２．３，３．５万，在1234，5678之间", ["1234", "5678"]),
        ("2–3–4–5–6–7", []),
        ("气温是-5度，−10.5，–3，A-5，3–5，2-", ["-5", "−10.5", "–3", "3–5", "2"]),
        ("歼-20，苏-27，气温-5℃，降到-12", ["-5", "-12"]),
        (
            "Intel 8月24日，iPhone 15 2021年8月24日，Apple 9月，A7 5月5日",
            ["Intel", "August 24", "iPhone 15", "August 24, 2021", "Apple", "A7", "May 5"],
        ),
        ("2.4Ghz的5G，802.11n，10KG", ["2.4Ghz", "5G", "802.11n", "10KG"]),
        ("1950年4月3日，8 月 24 號，4月31号，2月30", ["April 3, 1950", "August 24", "April 31", "30"]),
        ("13月5日，10月32日，5月5日元，11月１５日", ["5", "November 15"]),
    ],
)
def test_names_and_numbers(text, found):
    assert [each.text for each in NamesAndNumbers("zh", "en").find(text)] == found


def test_names_are_not_found_among_latin_words_nor_numbers_that_the_other_language_writes_in_another_way():
    text = "GPT-4 hat 1.000 Leser und 2024 Seiten"
    assert [each.text for each in NamesAndNumbers("de", "en").find(text)] == ["2024"]
    assert [each.text for each in NamesAndNumbers("de", "fr").find(text)] == ["1.000", "2024"]
    assert [each.text for each in NamesAndNumbers("de", "en").find("25km und 3D")] == ["25"]
    assert [each.text for each in NamesAndNumbers("ko", "en-GB").find("2024년 9월 16일")] == ["September 16, 2024"]
    assert [each.text for each in NamesAndNumbers("ko", "en").find("Apple 2024년에")] == ["Apple", "2024"]
    assert [each.text for each in NamesAndNumbers("ja", "de").find("2024年9月16日")] == ["2024"]


@pytest.mark.parametrize("part", ["1~", "1–", "~9x"])
def test_the_time_does_not_grow_with_the_square_of_a_range(part):
    assert len(NamesAndNumbers("zh", "en").find(part * 100_000)) <= 1
