"""How much the calls with a key may ask for: sentences in flight, and sentences a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from translane_server.access.keys import KeyHolder
from translane_server.core.errors import FieldViolation, InvalidRequestError, SentenceRateError, TooManySentencesError
from translane_server.observation.metrics import Metrics

# How long a caller should wait until another call of the same key has probably ended [seconds].
_RETRY_AFTER = 0.5

# Longest delay that is suggested before a retry [seconds].
_LONGEST_RETRY = 60.0


@dataclass(eq=False)
class Allowance:
    """What all calls of one holder may still ask for.

    The sentences a second are a bucket of tokens: it holds what may come within one second, and fills all the time. A
    request takes one token for each sentence. It is accepted while there is any token, and may leave a debt, so a
    request of many sentences is not refused for ever; the next request waits until the debt is paid.

    Attributes:
        name: who has the keys.
        holder: the holder's limits. Others may take their place; what is in flight stays in flight.
        metrics: counts sentences and refused calls.
        label: the holder in metrics.
        clock: seconds, monotonic.
        in_flight: number of sentences of open calls.
    """

    name: str
    holder: KeyHolder
    metrics: Metrics
    label: str
    clock: Callable[[], float] = time.monotonic
    in_flight: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._sentences = self.metrics.key_sentences.labels(self.label)
        self._tokens = self._capacity
        self._filled = self.clock()

    def take(self, sentences: int, *, of_call: int = 0) -> None:
        """Count sentences of a call.

        Args:
            sentences: how many sentences are added.
            of_call: how many sentences of the same call are counted already. The rest of an accepted call is not
                refused for the rate.

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
