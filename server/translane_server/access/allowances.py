"""How much the calls with a key may ask for: sentences in flight, and sentences a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import Counter

from translane_server.access.keys import KeyHolder
from translane_server.core.errors import FieldViolation, InvalidRequestError, SentenceRateError, TooManySentencesError

# How long a caller should wait until another call of the same key has probably ended [seconds].
_RETRY_AFTER = 0.5

# Longest delay that is suggested before a retry [seconds].
_LONGEST_RETRY = 60.0


class Allowance:
    """What all calls of one holder may still ask for.

    The sentences a second are a bucket of tokens: it holds what may come within one second, and fills all the time. A
    request takes one token for each sentence. It is accepted while there is any token, and may leave a debt, so a
    request of many sentences is not refused for ever; the next request waits until the debt is paid.

    Args:
        holder: who has the keys.
        clock: seconds, monotonic.
    """

    def __init__(self, holder: KeyHolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_flight = 0
        self._limit, self._rate = holder.sentences_in_flight, holder.sentences_per_second
        self._tokens = self._capacity
        self._filled = clock()

    @property
    def in_flight(self) -> int:
        """Number of sentences of open calls."""
        return self._in_flight

    def change(self, holder: KeyHolder) -> None:
        """Use other limits from now on. What is in flight stays in flight."""
        self._limit, self._rate = holder.sentences_in_flight, holder.sentences_per_second

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
        limit = self._limit
        if limit is not None and self._in_flight + sentences > limit:
            if of_call + sentences > limit:
                problem = f"has {of_call + sentences} sentences, and its key may have {limit} in flight"
                raise InvalidRequestError(FieldViolation("request", problem))
            raise TooManySentencesError(
                f"{self._in_flight} sentences of this key are in flight, {sentences} more would exceed its limit of"
                f" {limit}",
                _RETRY_AFTER,
            )
        if self._rate is not None:
            self._spend(sentences, self._rate, is_accepted=of_call > 0)
        self._in_flight += sentences

    def give_back(self, sentences: int) -> None:
        """Count sentences no longer: their call has ended."""
        self._in_flight -= sentences

    @property
    def _capacity(self) -> float:
        return max(1.0, self._rate or 0.0)

    def _spend(self, sentences: int, rate: float, *, is_accepted: bool) -> None:
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._filled) * rate)
        self._filled = now
        if self._tokens < 1 and not is_accepted:
            wait = min((1 - self._tokens) / rate, _LONGEST_RETRY)
            raise SentenceRateError(f"this key may send {rate:g} sentences a second", wait)
        self._tokens -= sentences


class Charge:
    """What one call takes of the allowance of its key's holder.

    Args:
        name: the holder.
        allowance: the holder's.
        sentences: counts the sentences of the holder.
        rejected: returns what counts refused calls, by their reason.
    """

    __slots__ = ("_allowance", "_rejected", "_sentences", "_taken", "name")

    def __init__(self, name: str, allowance: Allowance, sentences: Counter, rejected: Callable[[str], Counter]) -> None:
        self.name = name
        self._allowance = allowance
        self._sentences = sentences
        self._rejected = rejected
        self._taken = 0

    def pay(self, sentences: int) -> None:
        """Take an allowance for sentences of the call. Raises as `Allowance.take`."""
        self._allowance.take(sentences, of_call=self._taken)
        self._taken += sentences
        self._sentences.inc(sentences)

    def count_refusal(self, reason: str) -> None:
        """Count that the call was refused."""
        self._rejected(reason).inc()

    def close(self) -> None:
        """Give back what is in flight: the call has ended."""
        taken, self._taken = self._taken, 0
        self._allowance.give_back(taken)
