"""Requests, and requests in parts where a text cannot be translated."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from unit.batch.fake_workers import settings_of

from translane.errors import (
    DeadlineExceeded,
    FieldViolation,
    Internal,
    InvalidArgument,
    NotFound,
    QueueFull,
    ResourceExhausted,
    TranslaneError,
    Unavailable,
)
from translane.results import Hypothesis, Translation
from translane_batch import translator
from translane_batch.filters import Filters
from translane_batch.records import FAILED, REFUSED, Answer
from translane_batch.settings import BatchError
from translane_batch.translator import LONGEST_TEXT, TEXTS, Translator


class FakeClient:
    """Answers as a server does whose texts `fails` gives errors for."""

    def __init__(self, fails: Callable[[Sequence[str]], TranslaneError | None] = lambda _: None) -> None:
        self.fails = fails
        self.requests: list[list[str]] = []
        self.options: dict[str, Any] = {}
        self.running = self.most_running = 0

    async def translate_iter(self, texts: Sequence[str], **options: Any) -> AsyncIterator[Translation]:
        self.requests.append(list(texts))
        self.options = options
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        await asyncio.sleep(0)
        self.running -= 1
        if error := self.fails(texts):
            raise error
        for text in texts:
            yield Translation((Hypothesis(f"[{text}]", None),), 1)


def make(client: FakeClient, requests: int = 2, **settings: Any) -> Translator:
    chosen = settings_of(**settings)
    return Translator(client, chosen, Filters(chosen, ("zh", "en")), requests)  # type: ignore[arg-type]


async def answers_of(client: FakeClient, texts: Sequence[str], requests: int = 2, **settings: Any) -> list[Answer]:
    """What each text gets: an answer of its own, once."""
    found: list[tuple[int, Answer]] = []
    await make(client, requests, **settings).translate(list(enumerate(texts)), found.extend)
    assert sorted(number for number, _ in found) == list(range(len(texts)))
    return [answer for _, answer in sorted(found)]


async def test_every_text_gets_its_own_answer():
    client = FakeClient()
    texts = [f"{'x' * (number * 7 % 50)}{number}" for number in range(300)]
    assert await answers_of(client, texts) == [Answer(f"[{text}]") for text in texts]
    assert max(map(len, client.requests)) == TEXTS
    assert client.most_running == 2
    assert sorted(text for request in client.requests for text in request) == sorted(texts)


async def test_long_texts_make_short_requests():
    client = FakeClient()
    texts = ["长" * 5000, "字" * 5000, "文" * 20_000, "a"]
    assert await answers_of(client, texts) == [Answer(f"[{text}]") for text in texts]
    assert sorted(map(len, client.requests)) == [1, 3]


async def test_options_are_those_of_the_settings():
    client = FakeClient()
    await answers_of(client, ["a"], beam_size=2, source_language="zh", min_quality=0.5, max_ratio=3)
    assert client.options["beam_size"] == 2
    assert client.options["source_language"] == "zh"
    assert client.options["return_quality"] is True
    assert client.options["return_tokens"] is True
    assert client.options["model"] == ""  # the folder of a local model is not its name
    await answers_of(client, ["a"], num_hypotheses=3)
    assert client.options["beam_size"] == 3
    await answers_of(client, ["a"], server="a:1")
    assert client.options["model"] == "m"
    assert "beam_size" not in client.options


def naming(texts: Sequence[str]) -> TranslaneError | None:
    """The error of a server that names the texts at fault, ten at most."""
    wrong = [FieldViolation(f"texts[{n}]", "is bad") for n, text in enumerate(texts) if text.startswith("bad")]
    return InvalidArgument("bad", violations=tuple(wrong[:10])) if wrong else None


def not_naming(kind: type[TranslaneError], reason: str = "") -> Callable[[Sequence[str]], TranslaneError | None]:
    return lambda texts: kind("it fails", reason=reason) if any(text.startswith("bad") for text in texts) else None


@pytest.mark.parametrize(
    ("fails", "reason", "detail"),
    [
        (naming, REFUSED, "is bad"),
        (not_naming(Internal, "POISONED"), FAILED, "it fails"),
        (not_naming(DeadlineExceeded), FAILED, "it fails"),
        (not_naming(ResourceExhausted, "MESSAGE_TOO_LARGE"), FAILED, "it fails"),
        (not_naming(ResourceExhausted), FAILED, "it fails"),
    ],
)
@pytest.mark.parametrize("every", [1, 3, 40])
async def test_a_text_that_fails_costs_no_other_its_translation(fails, reason, detail, every, monkeypatch):
    monkeypatch.setattr(translator, "_PAUSES", (0.0, 0.0))
    texts = [f"bad {number}" if number % every == 0 else f"text {number}" for number in range(100)]
    assert await answers_of(FakeClient(fails), texts) == [
        Answer("", reason, detail) if text.startswith("bad") else Answer(f"[{text}]") for text in texts
    ]


async def test_texts_that_are_too_many_together_are_translated_apart():
    """A server names the text with which its limit is exceeded, and the text is as good as the others."""

    def fails(texts: Sequence[str]) -> TranslaneError | None:
        if len(texts) <= 5:
            return None
        return InvalidArgument("many", violations=(FieldViolation("texts[5]", "has too many sentences"),))

    texts = [str(number) for number in range(64)]
    assert await answers_of(FakeClient(fails), texts) == [Answer(f"[{text}]") for text in texts]


async def test_replicas_that_start_again_are_waited_for(monkeypatch):
    monkeypatch.setattr(translator, "_PAUSES", (0.0, 0.0))
    errors = [Internal("decoding has failed", reason="ENGINE_FAILURE")] * 2
    client = FakeClient(lambda _: errors.pop() if errors else None)
    assert await answers_of(client, ["a"]) == [Answer("[a]")]
    assert len(client.requests) == 3


async def test_a_text_that_is_too_long_is_refused_unsent():
    """gRPC itself refuses a message that is much too large, and gives no reason."""

    def fails(texts: Sequence[str]) -> TranslaneError | None:
        return ResourceExhausted("it is too large") if any(len(text.encode()) > 2 << 20 for text in texts) else None

    client = FakeClient(fails)
    fits, too_long = "长" * (LONGEST_TEXT // 3), "长" * (LONGEST_TEXT // 3 + 1)
    assert await answers_of(client, ["a", too_long, fits, "字" * 5_000_000, "b"]) == [
        Answer("[a]"),
        Answer("", REFUSED, "has 1048578 bytes, at most 1048576 are accepted"),
        Answer(f"[{fits}]"),
        Answer("", REFUSED, "has 15000000 bytes, at most 1048576 are accepted"),
        Answer("[b]"),
    ]
    assert too_long not in [text for request in client.requests for text in request]


@pytest.mark.parametrize("error", [DeadlineExceeded("it is slow"), ResourceExhausted("too much")])
@pytest.mark.parametrize("requests", [1, 8])
async def test_a_server_that_does_not_translate_for_a_while_costs_no_text(error, requests, monkeypatch):
    """An answer stays as it is for ever, so it must not come from a bad moment."""
    monkeypatch.setattr(translator, "_PAUSES", (0.0, 0.0))
    texts = [str(number) for number in range(200)]
    for failures in (*range(1, 420, 11), 399, 1 << 30):
        left = iter(range(failures))
        client = FakeClient(lambda _, left=left: None if next(left, None) is None else error)  # type: ignore[misc]
        try:
            assert await answers_of(client, texts, requests) == [Answer(f"[{text}]") for text in texts]
        except type(error):
            assert failures > 2


@pytest.mark.parametrize(
    "error",
    [
        Internal("decoding has failed", reason="ENGINE_FAILURE"),
        DeadlineExceeded("it is slow"),
        ResourceExhausted("too much"),
        Unavailable("no server"),
        QueueFull("full"),
        InvalidArgument("beams", violations=(FieldViolation("options.beam_size", "is 99"),)),
    ],
)
async def test_what_no_text_is_the_reason_of_ends_the_run(error, monkeypatch):
    monkeypatch.setattr(translator, "_PAUSES", (0.0, 0.0))
    client = FakeClient(lambda _: error)
    with pytest.raises(type(error)):
        await answers_of(client, [str(number) for number in range(1000)])
    # What waits is given up. An error that may be about the texts is that of the server where each part has it.
    assert len(client.requests) <= (200 if isinstance(error, DeadlineExceeded | ResourceExhausted) else 12)


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("options.beam_size", "--beam-size: is wrong"),
        ("target_language", "--target-language: is wrong"),
    ],
)
async def test_wrong_settings_are_found_before_the_run(field, sentence):
    client = FakeClient(lambda _: InvalidArgument("x", violations=(FieldViolation(field, "is wrong"),)))
    with pytest.raises(BatchError, match=sentence) as caught:
        await make(client).check()
    assert caught.value.exit_code == 2
    assert client.requests == [[""]]
    client = FakeClient(lambda _: NotFound("no model has the name m; this server has a"))
    with pytest.raises(BatchError, match="no model has the name m"):
        await make(client).check()
