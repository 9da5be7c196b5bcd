"""Sentences that are at fault: what ends a worker twice alone is refused, and is known when it comes again."""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable

from translane_server.engine.sequence import Sentence

_MOST_KNOWN = 4096
_KNOWN_FOR = 600.0  # seconds
_CALLER_KNOWN_FOR = 60.0  # seconds


class Quarantine:
    """Remembers the sentences that were refused, and who asked for them.

    Sentences are remembered by digests that nobody outside this process can compute.

    Args:
        clock: monotonic clock [seconds].
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = os.urandom(16)
        # Digests and callers -> when a sentence was refused; the oldest first.
        self._known: OrderedDict[str, float] = OrderedDict()
        self._callers: OrderedDict[str, float] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether any sentence is known."""
        return bool(self._known)

    def name(self, sentence: Sentence) -> str:
        """A name of a sentence for the log, which must not have texts. It depends on the tokens alone."""
        tokens = repr((tuple(sentence.source_ids), sentence.forced_ids)).encode()
        return hashlib.blake2b(tokens, key=self._key, digest_size=8).hexdigest()

    def add(self, sentence: Sentence, caller: str) -> None:
        """Remember a sentence that is refused, and its caller."""
        self._known[self.name(sentence)] = self._callers[caller] = self._clock()
        for known in (self._known, self._callers):
            if len(known) > _MOST_KNOWN:
                known.popitem(last=False)

    def knows_caller(self, caller: str) -> bool:
        """Whether a sentence of `caller` was refused in the last minute."""
        return self._callers.get(caller, -_CALLER_KNOWN_FOR) > self._clock() - _CALLER_KNOWN_FOR

    def knows(self, sentence: Sentence) -> bool:
        """Whether a sentence was refused lately."""
        if not self._known:
            return False
        name = self.name(sentence)
        refused_at = self._known.get(name)
        if refused_at is None:
            return False
        if refused_at > self._clock() - _KNOWN_FOR:
            return True
        del self._known[name]  # it gets another chance
        return False
