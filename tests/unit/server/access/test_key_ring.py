import hmac
import logging
from datetime import UTC, datetime, timedelta

import pytest

from translane_server.access.authenticator import KeyRing
from translane_server.access.keys import Key, KeyHolder, digest_of, make_token, write_keys
from translane_server.core.errors import ExpiredKeyError, MissingKeyError, TooManySentencesError, UnknownKeyError
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


def holder(*tokens, expires=None, **limits):
    return KeyHolder(keys=tuple(Key(sha256=digest_of(token).hex(), expires=expires) for token in tokens), **limits)


@pytest.fixture
def tokens():
    return [make_token() for _ in range(3)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.toml"


def test_each_key_of_a_holder_admits(path, tokens):
    file = File(path, a=holder(*tokens[:2]), b=holder(tokens[2]))
    assert [file.admit(token).name for token in tokens] == ["a", "a", "b"]
    assert file.admit(tokens[0], scheme="bearer ").name == "a"
    assert file.ring.admit([("authorization", f"BEARER {tokens[0]}".encode())], PEER).name == "a"


@pytest.mark.parametrize("metadata", [[], [("authorization", "")], [("authorization", "Basic eDp5")], [("key", "x")]])
def test_a_call_without_a_key_is_told_so(path, tokens, metadata):
    with pytest.raises(MissingKeyError, match="a key is needed"):
        File(path, a=holder(tokens[0])).ring.admit(metadata, PEER)


def test_keys_that_differ_in_anything_are_unknown(path, tokens):
    token = tokens[0]
    file = File(path, a=holder(token))
    others = [
        "", "tl_", token[:-1], token + "0", token + " ", " " + token, token.upper(), token[3:], tokens[1],
        digest_of(token).hex(), "tl_" + digest_of(token).hex(), token * 100, "tl_" + "é" * 64,
    ]  # fmt: skip
    for other in others:
        with pytest.raises(UnknownKeyError, match="this server does not know the key of the call"):
            file.admit(other)
    flipped = token[:-1] + ("0" if token[-1] != "0" else "1")
    with pytest.raises(UnknownKeyError):
        file.admit(flipped)


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


def test_failed_attempts_fill_neither_memory_nor_log_and_show_no_key(path, tokens, caplog):
    file = File(path, a=holder(tokens[0], expires=datetime(1970, 1, 1, tzinfo=UTC)))
    with caplog.at_level(logging.DEBUG):
        for number in range(3000):
            with pytest.raises((UnknownKeyError, ExpiredKeyError, MissingKeyError)):
                file.admit(tokens[number % 2], scheme="" if number % 3 else "Bearer ")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("calls are refused for their keys")
    assert not any(token[3:20] in caplog.text for token in tokens)
