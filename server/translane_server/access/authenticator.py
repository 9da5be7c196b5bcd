"""Who may call, and how much: the keys, which are read again when their file changes, and their limits."""

from __future__ import annotations

import hmac
import logging
import time
from collections import Counter as Counts
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from translane_server.access.keys import Key, KeyHolder, digest_of, is_token, load_keys
from translane_server.core.errors import (
    ExpiredKeyError,
    FieldViolation,
    InvalidRequestError,
    MissingKeyError,
    RequestError,
    SentenceRateError,
    TooManySentencesError,
    UnknownKeyError,
)
from translane_server.core.file_changes import FileChanges
from translane_server.observation.metrics import Metrics
from translane_server.settings.model_sources import is_loopback
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)

HEADER = "authorization"
_SCHEME = "bearer "  # names of schemes have no case (RFC 9110, section 11.1)

# From one line about refused calls to the next [seconds]. A flood must not fill the log.
_TELLING_INTERVAL = 60.0

# The keys are in drawers by two bytes of their hashes, which are this many hexadecimal digits.
_DRAWER_DIGITS = 4

# How long a caller should wait until another call of the same key has probably ended [seconds].
_RETRY_AFTER = 0.5
# Longest delay that is suggested before a retry [seconds].
_LONGEST_RETRY = 60.0

Metadata = Sequence[tuple[str, str | bytes]]


@dataclass(eq=False)
class Allowance:
    """What all calls of one holder may still ask for.

    The sentences a second are a bucket of tokens: it holds what may come within one second, and fills all the time. A
    request takes one token for each sentence. It is accepted while there is any token, and may leave a debt, so a
    request of many sentences is not refused for ever; the next request waits until the debt is paid.
    """

    name: str
    holder: KeyHolder  # its limits. Others may take their place; what is in flight stays in flight
    metrics: Metrics
    label: str  # the holder in metrics
    clock: Callable[[], float] = time.monotonic
    in_flight: int = field(default=0, init=False)  # sentences of open calls

    def __post_init__(self) -> None:
        self._sentences = self.metrics.key_sentences.labels(self.label)
        self._tokens = self._capacity
        self._filled = self.clock()

    def take(self, sentences: int, *, of_call: int = 0) -> None:
        """Count sentences of a call, of which `of_call` others are counted already.

        The rest of an accepted call is not refused for the rate.

        Raises:
            TooManySentencesError: too many sentences are in flight.
            SentenceRateError: too many sentences came lately.
            InvalidRequestError: a call of that many sentences can never be accepted.
        """
        limit, rate = self.holder.sentences_in_flight, self.holder.sentences_per_second
        if limit is not None and self.in_flight + sentences > limit:
            if of_call + sentences > limit:
                problem = f"has {of_call + sentences} sentences, and its key may have {limit} in flight"
                raise InvalidRequestError(FieldViolation("request", problem))
            raise TooManySentencesError(
                f"{self.in_flight} sentences of this key are in flight, {sentences} more would exceed its limit of"
                f" {limit}",
                _RETRY_AFTER,
            )
        if rate is not None:
            now = self.clock()
            self._tokens = min(self._capacity, self._tokens + (now - self._filled) * rate)
            self._filled = now
            if self._tokens < 1 and not of_call:
                wait = min((1 - self._tokens) / rate, _LONGEST_RETRY)
                raise SentenceRateError(f"this key may send {rate:g} sentences a second", wait)
            self._tokens -= sentences
        self.in_flight += sentences
        self._sentences.inc(sentences)

    def give_back(self, sentences: int) -> None:
        """Count sentences no longer: their call has ended."""
        self.in_flight -= sentences

    def count_refusal(self, reason: str) -> None:
        """Count a call that was refused."""
        self.metrics.key_rejected.labels(self.label, reason).inc()

    @property
    def _capacity(self) -> float:
        return max(1.0, self.holder.sentences_per_second or 0.0)


class KeyRing:
    """The keys of a file, which the server knows. Raises KeysError if the file is wrong.

    The metrics have the names of holders if it `shows_names`; else they count all together.
    """

    def __init__(self, path: Path, metrics: Metrics, *, shows_names: bool = False) -> None:
        self._path = path
        self._metrics = metrics
        self._shows_names = shows_names
        self._changes = FileChanges([path])
        self._refused: Counts[str] = Counts()
        self._told = float("-inf")
        self._drawers: dict[str, list[tuple[Key, Allowance]]] = {}
        self._allowances: dict[str, Allowance] = {}
        self._read()

    def admit(self, metadata: Metadata, peer: str) -> Allowance:
        """Find the holder of a call's key, and return what the holder's calls may ask for.

        Names of the metadata are in lower case. The log has the `peer`, gRPC's name of the other end.

        Raises:
            MissingKeyError: the call has no key.
            UnknownKeyError: the call's key is not in the file.
            ExpiredKeyError: the call's key has expired.
        """
        try:
            key, allowance = self._find(_token_of(metadata))
            if key.expires and key.has_expired(datetime.now(UTC)):
                allowance.count_refusal(ExpiredKeyError.reason)
                raise ExpiredKeyError(f"the key of {allowance.name} expired at {key.expires:%Y-%m-%d %H:%M %Z}")
        except RequestError as error:
            self._tell(error.reason, peer)
            raise
        return allowance

    def refresh(self) -> None:
        """Read the file again if it has changed. A wrong file is logged, and the keys before go on."""
        self._changes.refresh(self._read, "the keys before go on")

    def _find(self, token: str) -> tuple[Key, Allowance]:
        """Return the key of a token, and what its holder's calls may ask for.

        How long the search takes depends on two bytes of a hash, of which nobody can tell anything of a key. Within a
        drawer, hashes are compared in constant time.

        Raises:
            UnknownKeyError: there is none.
        """
        if is_token(token):
            digest = digest_of(token).hex()
            for key, allowance in self._drawers.get(digest[:_DRAWER_DIGITS], ()):
                if hmac.compare_digest(key.sha256, digest):
                    return key, allowance
        raise UnknownKeyError("this server does not know the key of the call")

    def _read(self) -> None:
        """Let new calls use the keys of the file. Calls that run go on, whatever becomes of their keys.

        Raises KeysError if the file is wrong.
        """
        drawers: dict[str, list[tuple[Key, Allowance]]] = {}
        allowances = {}
        holders = load_keys(self._path)
        for name, holder in holders.items():
            if allowance := self._allowances.get(name):
                allowance.holder = holder
            else:
                allowance = Allowance(name, holder, self._metrics, name if self._shows_names else "")
            allowances[name] = allowance
            for key in holder.keys:
                drawers.setdefault(key.sha256[:_DRAWER_DIGITS], []).append((key, allowance))
        self._drawers, self._allowances = drawers, allowances
        _log.info("keys: %d, holders: %d", sum(len(holder.keys) for holder in holders.values()), len(holders))

    def _tell(self, reason: str, peer: str) -> None:
        """Log refused calls: at once, and then at most once a minute, with how many there were."""
        self._refused[reason] += 1
        now = time.monotonic()
        if now - self._told < _TELLING_INTERVAL:
            return
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(self._refused.items()))
        _log.warning("calls are refused for their keys: %s; the last one came from %s", counts, peer)
        self._refused.clear()
        self._told = now


def value_of(metadata: Metadata, name: str) -> str:
    """Return the first value of a key in the metadata of a call; "" if there is none."""
    value = next((value for each, value in metadata if each == name), "")
    return value if isinstance(value, str) else value.decode("latin-1")


def _token_of(metadata: Metadata) -> str:
    """Return the bearer token of a call. Raises MissingKeyError if there is none."""
    text = value_of(metadata, HEADER)
    if text[: len(_SCHEME)].lower() != _SCHEME:
        raise MissingKeyError("a key is needed: send it as authorization: Bearer tl_…")
    return text[len(_SCHEME) :]


def keys_of(settings: ServerSettings, metrics: Metrics) -> KeyRing | None:
    """Return the keys that callers need; None if they need none. Raises as `KeyRing`."""
    return KeyRing(settings.keys_file, metrics, shows_names=settings.key_metrics) if settings.keys_file else None


def what_is_missing(settings: ServerSettings) -> str:
    """What a server lacks that other machines can reach, and what follows; empty if it lacks nothing."""
    if is_loopback(settings.host):
        return ""
    knows_callers = settings.keys_file or settings.tls_client_ca
    if settings.tls_cert and knows_callers:
        return ""
    if settings.tls_cert:
        return "without keys (--keys-file): whoever reaches the port may translate"
    if knows_callers:
        return "without TLS (--tls-cert): whoever is on the way can read texts and keys"
    return (
        "without TLS (--tls-cert) and keys (--keys-file): whoever reaches the port may translate, and whoever is on"
        " the way can read texts"
    )
