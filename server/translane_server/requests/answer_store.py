"""Answers in memory: as many as fit into a number of bytes, those that were asked for last."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable

# What the table takes for an entry beside its key and its answer [bytes]: a place in a hash table that may be two
# thirds empty, a link to its neighbours, and what the allocator rounds up.
_OVERHEAD = 240

# The largest answer that is kept: this part of the bytes, and this many bytes at most. A few long texts must not drive
# out all others, and an answer drives out so few others that the event loop waits a millisecond or two.
_LARGEST_PART = 8
_LARGEST = 1 << 20


class AnswerStore:
    """Keeps answers by their keys, and forgets those that nobody has asked for the longest (LRU).

    All calls come from one thread.

    Args:
        limit: most bytes of all entries, with what Python takes for them.
        count_evictions: is told how many answers were forgotten for others.

    Attributes:
        bytes: what all entries take now [bytes].
    """

    def __init__(self, limit: int, count_evictions: Callable[[int], None] = lambda _count: None) -> None:
        self._limit = limit
        self._count_evictions = count_evictions
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes) -> bytes | None:
        """Return the answer of a key, which is now the last one that was asked for; None if there is none."""
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
        return answer

    def put(self, key: bytes, answer: bytes) -> None:
        """Keep an answer, unless it takes more than an eighth of all bytes, or than a mebibyte."""
        size = _size(key, answer)
        if size > min(self._limit // _LARGEST_PART, _LARGEST):
            return
        answers = self._answers
        if (before := answers.pop(key, None)) is not None:
            self.bytes -= _size(key, before)
        answers[key] = answer
        self.bytes += size
        evicted = 0
        while self.bytes > self._limit:
            self.bytes -= _size(*answers.popitem(last=False))
            evicted += 1
        if evicted:
            self._count_evictions(evicted)

    def close(self) -> None:
        """Forget all answers, and keep none from now on."""
        self._limit = self.bytes = 0
        self._answers.clear()


def _size(key: bytes, answer: bytes) -> int:
    return sys.getsizeof(key) + sys.getsizeof(answer) + _OVERHEAD
