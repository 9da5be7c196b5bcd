"""Which keys admit, and how much the calls of their holder may ask for."""

import errno
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from helpers.key_files import holder
from translane_server.access.authenticator import Allowance, KeyRing
from translane_server.access.keys import KeyHolder, digest_of, make_token, write_keys
from translane_server.core.errors import (
    ExpiredKeyError,
    InvalidRequestError,
    RequestError,
    SentenceRateError,
    TooManySentencesError,
    UnknownKeyError,
)
from translane_server.observation.metrics import Metrics

PEER = "ipv4:192.0.2.1:1234"


class File:
    """A file of keys, and the ring that follows it."""

    def __init__(self, path, **holders):
        self.path = path
        self.write(holders)
        self.metrics = Metrics()
        self.ring = KeyRing(path, self.metrics, shows_names=True)

    def write(self, holders):
        new = self.path.with_suffix(".new")
        new.write_text(write_keys(holders))
        new.replace(self.path)

    def change(self, content):
        self.write(content) if isinstance(content, dict) else self.path.write_text(content)
        self.ring.refresh()
        self.ring.refresh()

    def admit(self, token, scheme="Bearer "):
        return self.ring.admit([("user-agent", "x"), ("authorization", scheme + token)], PEER)


@pytest.fixture
def tokens():
    return [make_token() for _ in range(3)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.toml"


@pytest.mark.parametrize("digits", [0, 4])  # with 0, all keys are in one drawer
def test_each_key_of_a_holder_admits(path, tokens, digits, monkeypatch):
    monkeypatch.setattr("translane_server.access.authenticator._DRAWER_DIGITS", digits)
    file = File(path, a=holder(*tokens[:2]), b=holder(tokens[2]))
    assert [file.admit(token).name for token in tokens] == ["a", "a", "b"]
    assert file.admit(tokens[0], scheme="bearer ").name == "a"
    assert file.ring.admit([("authorization", f"BEARER {tokens[0]}".encode())], PEER).name == "a"


def test_keys_that_differ_in_anything_are_unknown(path, tokens):
    token = tokens[0]
    file = File(path, a=holder(token))
    flipped = token[:-1] + ("0" if token[-1] != "0" else "1")
    others = [
        "", "tl_", token[:-1], token + "0", token + " ", " " + token, token.upper(), token[3:], tokens[1], flipped,
        digest_of(token).hex(), "tl_" + digest_of(token).hex(), token * 100, "tl_" + "é" * 64,
    ]  # fmt: skip
    for other in others:
        with pytest.raises(UnknownKeyError, match="this server does not know the key of the call"):
            file.admit(other)


def test_keys_are_compared_in_constant_time(path, tokens, monkeypatch):
    """No test can measure it, so it looks at who compares."""
    file = File(path, a=holder(tokens[0]))
    monkeypatch.setattr(hmac, "compare_digest", lambda _one, _other: False)
    with pytest.raises(UnknownKeyError):
        file.admit(tokens[0])


def test_an_expired_key_names_its_holder_and_the_time(path, tokens):
    soon = datetime.now(UTC) + timedelta(hours=1)
    file = File(path, a=holder(tokens[0], expires=datetime(2025, 1, 1, tzinfo=UTC)), b=holder(tokens[1], expires=soon))
    assert file.admit(tokens[1]).name == "b"
    with pytest.raises(ExpiredKeyError, match="the key of a expired at 2025-01-01 00:00 UTC"):
        file.admit(tokens[0])
    value = file.metrics.registry.get_sample_value
    assert value("translane_key_rejected_total", {"key": "a", "reason": "EXPIRED_KEY"}) == 1


def test_a_changed_file_changes_who_is_admitted(path, tokens):
    file = File(path, a=holder(tokens[0]))
    before = file.admit(tokens[0])
    before.take(5)
    file.change({"a": holder(tokens[1], sentences_in_flight=6), "b": holder(tokens[2])})
    with pytest.raises(UnknownKeyError):
        file.admit(tokens[0])
    assert file.admit(tokens[2]).name == "b"
    after = file.admit(tokens[1])
    after.take(1)
    with pytest.raises(TooManySentencesError):  # what the key before has in flight counts
        after.take(1)
    before.give_back(5)
    after.take(5)


@pytest.mark.parametrize("content", ["[a", "", "x"])
def test_a_broken_file_keeps_the_keys_and_is_told_once(path, tokens, caplog, content):
    file = File(path, a=holder(tokens[0]))
    if not content:
        path.unlink()
        path.mkdir()
        file.ring.refresh()
        file.ring.refresh()
    else:
        file.change(content)
    file.ring.refresh()
    assert file.admit(tokens[0]).name == "a"
    assert [line.endswith("the keys before go on") for line in caplog.messages] == [True]


def test_a_key_that_is_removed_goes_although_the_file_cannot_be_read_at_first(path, tokens, caplog, monkeypatch):
    file = File(path, a=holder(tokens[0]))
    with monkeypatch.context() as patched:
        patched.setattr("os.open", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        file.change({})
        file.ring.refresh()
    assert file.admit(tokens[0]).name == "a"
    file.ring.refresh()
    with pytest.raises(UnknownKeyError):
        file.admit(tokens[0])
    assert sum("Too many open files; the keys before go on" in line for line in caplog.messages) == 1


FULL = (TooManySentencesError, "10 sentences of this key are in flight, 1 more would exceed", 0.5)
RATE = "this key may send "
# Limits, and calls: when one comes [seconds], its sentences (negative: they are given back), how many of the same call
# are counted already, and how it is refused, with the time to wait.
CALLS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "in flight": (
        {"sentences_in_flight": 10},
        [(0, 4, 0, None), (0, 6, 0, None), (0, 1, 0, FULL), (0, -4, 0, None), (0, 4, 0, None), (0, 1, 0, FULL)],
    ),
    "never": (
        {"sentences_in_flight": 10},
        [
            (0, 11, 0, (InvalidRequestError, "has 11 sentences, and its key may have 10 in flight", None)),
            (0, 8, 0, None),
            (0, 4, 8, (InvalidRequestError, "has 12 sentences", None)),
            (0, 2, 0, None),
        ],
    ),
    "the wait is exact": (  # the ten of the bucket, and a debt of twenty
        {"sentences_per_second": 10},
        [
            (0, 30, 0, None),
            (0, 1, 0, (SentenceRateError, RATE, 2.1)),
            (2.09, 1, 0, (SentenceRateError, RATE, 0.01)),
            (2.101, 1, 0, None),
        ],
    ),
    "nothing is saved up": (
        {"sentences_per_second": 10},
        [(60, 30, 0, None), (60, 1, 0, (SentenceRateError, RATE, 2.1))],
    ),
    "a slow rate": (
        {"sentences_per_second": 0.01},
        [(0, 1, 0, None), (0, 1, 0, (SentenceRateError, RATE, 60)), (100.001, 1, 0, None)],
    ),
    "the rest of an accepted call": (
        {"sentences_per_second": 1},
        [(0, 1, 0, None), (0, 5, 1, None), (0, 1, 0, (SentenceRateError, RATE, 6))],
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_is_refused_and_for_how_long(case):
    limits, calls = CALLS[case]
    now = 100.0
    allowance = Allowance("a", KeyHolder(**limits), Metrics(), "", lambda: now)
    for time, sentences, of_call, refusal in calls:
        now = 100.0 + time
        if sentences < 0:
            allowance.give_back(-sentences)
        elif refusal is None:
            allowance.take(sentences, of_call=of_call)
        else:
            kind, problem, wait = refusal
            with pytest.raises(RequestError, match=problem) as caught:
                allowance.take(sentences, of_call=of_call)
            assert type(caught.value) is kind
            assert getattr(caught.value, "retry_after", None) == (wait and pytest.approx(wait, abs=1e-6))


def test_refused_calls_are_told_again_after_a_minute_with_their_number(path, tokens, monkeypatch, caplog):
    file = File(path, a=holder(tokens[0]))
    for interval, calls in ((60.0, 3), (0.0, 1)):
        monkeypatch.setattr("translane_server.access.authenticator._TELLING_INTERVAL", interval)
        for _ in range(calls):
            with pytest.raises(UnknownKeyError):
                file.admit(tokens[1])
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["UNKNOWN_KEY 1;" in told[0], "UNKNOWN_KEY 3;" in told[1], len(told)] == [True, True, 2]
