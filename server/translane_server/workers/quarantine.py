"""Sentences that are at fault: what ends a worker twice alone is refused, and is known when it comes again."""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Sequence

from translane_server.engine.sequence import Sentence

_MOST_KNOWN = 4096  # sentences, and callers
_KNOWN_FOR = 600.0  # sentences [seconds]
_CALLER_KNOWN_FOR = 60.0  # callers [seconds]


class Quarantine:
    """Remembers the sentences that were refused, and who asked for them.

    Sentences are remembered by digests that nobody outside this process can compute.
    """

    def __init__(self) -> None:
        self.was_used = False  # whether any sentence was refused
        self._key = os.urandom(16)
        self._sentences = _Recent(_KNOWN_FOR)
        self._callers = _Recent(_CALLER_KNOWN_FOR)

    def name(self, sentence: Sentence) -> str:
        """A name of a sentence for the log, which must not have texts. It depends on the tokens alone."""
        tokens = repr((tuple(sentence.source_ids), sentence.forced_ids)).encode()
        return hashlib.blake2b(tokens, key=self._key, digest_size=8).hexdigest()

    def add(self, sentence: Sentence, caller: str) -> None:
        """Remember a sentence that is refused, and its caller."""
        self.was_used = True
        self._sentences.add(self.name(sentence))
        self._callers.add(caller)

    def knows_caller(self, caller: str) -> bool:
        """Whether a sentence of `caller` was refused in the last minute."""
        return caller in self._callers

    def knows_any(self, sentences: Sequence[Sentence]) -> bool:
        """Whether one of these sentences was refused lately. Where none was, this costs no digest."""
        return bool(self._sentences.added) and any(self.name(each) in self._sentences for each in sentences)


class _Recent:
    """What was added in the last `seconds`, or as much of it as is remembered."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # when each was added last, the oldest first; some of them may be too old
        self.added: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, each: str) -> bool:
        while self.added and next(iter(self.added.values())) <= time.monotonic() - self._seconds:
            self.added.popitem(last=False)
        return each in self.added

    def add(self, each: str) -> None:
        self.added[each] = time.monotonic()
        self.added.move_to_end(each)
        if len(self.added) > _MOST_KNOWN:
            self.added.popitem(last=False)
