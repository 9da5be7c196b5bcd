"""A table in memory that the front ends of a server share: what each holder of keys has taken, on all of them.

The table is a file without a name. Front ends inherit its descriptor, and map it. A record has a bucket of tokens (see
`allowances`), and a column for each front end with the sentences that this front end has in flight. Columns let the
server take back what a front end had when it was lost.

Records are found by a digest of the holder's name, because front ends read the file of keys at different moments. They
are probed one after the other, from the place that the digest gives, to the first one that nobody has used yet. A
record is never emptied. When all are used, a new holder gets the record of a holder that has nothing in flight, and
whose bucket was used longest ago.

Front ends exclude each other with record locks of the kernel (POSIX, fcntl(2)). A lock ends with its process, so a
front end that is killed leaves none. It leaves each record whole enough as well: every field is one aligned word. A
process that is killed between two words of a bucket changes it by one filling at most. A lock is held for some
microseconds; while a process is paused within them, others that need the same record wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os

from translane_server.access.keys import MOST_HOLDERS
from translane_server.errors import TooManySentencesError

MOST_RECORDS = 4 * MOST_HOLDERS
"""Holders that the table knows. Some were in earlier versions of the file of keys, and their last calls are open."""

_WORD = 8  # bytes

# The words of a record: what it is found by, what the bucket holds, when it was filled, and then the columns.
_DIGEST, _TOKENS, _FILLED, _COLUMNS = 0, 1, 2, 3

# How long a caller should wait until another record is probably free [seconds].
_RETRY_AFTER = 5.0


class SharedRecords:
    """The table, as one process has it. Its methods are called by one thread.

    The object stays as long as its process: the kernel drops the locks of a process when the process closes any
    descriptor of the file, and the map has one.

    Args:
        descriptor: of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        memory = mmap.mmap(descriptor, 0)
        self._end = len(memory)
        self._words = self._end // MOST_RECORDS // _WORD  # of a record
        whole = memoryview(memory)
        self._digests, self._numbers, self._seconds = whole.cast("Q"), whole.cast("q"), whole.cast("d")

    @classmethod
    def create(cls, front_ends: int) -> SharedRecords:
        """Return an empty table with a column for each front end."""
        descriptor = os.memfd_create("translane-keys")
        os.ftruncate(descriptor, MOST_RECORDS * (_COLUMNS + front_ends) * _WORD)
        return cls(descriptor)

    def lock(self, digest: int, record: int) -> int:
        """Lock the record of a holder, and return it. Other processes wait until it is unlocked.

        Args:
            digest: see `digest_of_name`.
            record: where the holder's record was the last time; 0 at first.

        Raises:
            TooManySentencesError: every record belongs to another holder with sentences in flight.
        """
        self._lock(record)
        while self._digests[record + _DIGEST] != digest:
            self.unlock(record)
            record = self._find(digest)
            self._lock(record)
        return record

    def unlock(self, record: int) -> None:
        """Let other processes have a record."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, _WORD, record * _WORD)

    def bucket(self, record: int) -> tuple[float, float]:
        """The tokens of a record, and when they were counted [seconds]."""
        return self._seconds[record + _TOKENS], self._seconds[record + _FILLED]

    def set_bucket(self, record: int, tokens: float, filled: float) -> None:
        """Set what `bucket` returns."""
        self._seconds[record + _TOKENS], self._seconds[record + _FILLED] = tokens, filled

    def in_flight(self, record: int) -> int:
        """Sentences of a holder in flight, on all front ends."""
        return sum(self._numbers[record + _COLUMNS : record + self._words])

    def add(self, record: int, front_end: int, sentences: int) -> None:
        """Change the sentences in flight on one front end. No other process writes its column."""
        self._numbers[record + _COLUMNS + front_end] += sentences

    def forget(self, front_end: int) -> None:
        """Begin a column anew."""
        for record in range(0, MOST_RECORDS * self._words, self._words):
            self._numbers[record + _COLUMNS + front_end] = 0

    def _find(self, digest: int) -> int:
        """Return the record of a holder, which may have to be made.

        Raises:
            TooManySentencesError: see `lock`.
        """
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1, self._end)  # one process at a time makes records
        try:
            for number in range(MOST_RECORDS):
                record = (digest + number) % MOST_RECORDS * self._words
                known = self._digests[record + _DIGEST]
                if known == digest:
                    return record
                if not known:
                    self._make(record, digest)
                    return record
            return self._take_over(digest)
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, self._end)

    def _take_over(self, digest: int) -> int:
        """Make a record of one whose bucket was used longest ago.

        Raises:
            TooManySentencesError: see `lock`.
        """
        records = range(0, MOST_RECORDS * self._words, self._words)
        for record in sorted(records, key=lambda each: self._seconds[each + _FILLED]):
            self._lock(record)
            try:
                if not self.in_flight(record):
                    self._make(record, digest)
                    return record
            finally:
                self.unlock(record)
        raise TooManySentencesError("too many holders of keys have sentences in flight", _RETRY_AFTER)

    def _make(self, record: int, digest: int) -> None:
        self.set_bucket(record, 0.0, float("-inf"))  # since then a bucket of any rate has become full
        self._digests[record + _DIGEST] = digest

    def _lock(self, record: int) -> None:
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, _WORD, record * _WORD)


def digest_of_name(name: str) -> int:
    """Return what the record of a holder is found by: 64 bits, and never 0, which is an unused record."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_WORD).digest()) or 1
