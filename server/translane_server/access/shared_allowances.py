"""Allowances of holders whose calls come to several front ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from translane_server.access.allowances import Allowance
from translane_server.access.keys import KeyHolder
from translane_server.access.shared_records import SharedRecords, digest_of_name


class SharedAllowances:
    """What the holders of keys have taken, counted for all front ends of a server together.

    The parent process creates it, and passes the descriptor on to its front ends, which join. The limits are those
    that a front end reads in the file of keys.

    Args:
        records: where all is counted.
        number: the front end of this process; None in the parent.

    Attributes:
        descriptor: of the memory that the processes share. A front end inherits it.
    """

    def __init__(self, records: SharedRecords, number: int | None = None) -> None:
        self._records = records
        self._number = number
        self.descriptor = records.descriptor

    @classmethod
    def create(cls, front_ends: int) -> SharedAllowances:
        """Return the allowances of front ends 0 to `front_ends` - 1, of which nothing is taken yet."""
        return cls(SharedRecords.create(front_ends))

    @classmethod
    def join(cls, descriptor: int, number: int) -> SharedAllowances:
        """Return what front end `number` counts in. Processes that it starts do not inherit the descriptor."""
        os.set_inheritable(descriptor, False)
        return cls(SharedRecords(descriptor), number)

    def forget(self, number: int) -> None:
        """Give back all that a front end had in flight. It has ended, and its successor has not joined yet."""
        self._records.forget(number)

    def allowance(self, name: str, holder: KeyHolder, clock: Callable[[], float] = time.monotonic) -> Allowance:
        """Return the allowance of a holder, for one event loop.

        Args:
            name: of the holder.
            holder: has the limits.
            clock: seconds, monotonic, and the same clock for all processes of the machine.
        """
        assert self._number is not None, "a front end joins first"
        return _SharedAllowance(holder, self._records, digest_of_name(name), self._number, clock)


class _SharedAllowance(Allowance):
    """An allowance whose state is in a record. Under a lock, `take` copies it here, decides, and writes it back."""

    def __init__(
        self, holder: KeyHolder, records: SharedRecords, digest: int, front_end: int, clock: Callable[[], float]
    ) -> None:
        super().__init__(holder, clock)
        self._records = records
        self._digest = digest
        self._front_end = front_end
        self._record = 0

    @property
    def in_flight(self) -> int:
        records = self._records
        self._record = record = records.lock(self._digest, self._record)
        try:
            return records.in_flight(record)
        finally:
            records.unlock(record)

    def take(self, sentences: int, *, of_call: int = 0) -> None:
        records = self._records
        self._record = record = records.lock(self._digest, self._record)
        try:
            self._in_flight = records.in_flight(record)
            self._tokens, self._filled = records.bucket(record)
            super().take(sentences, of_call=of_call)
            records.add(record, self._front_end, sentences)
            records.set_bucket(record, self._tokens, self._filled)
        finally:
            records.unlock(record)

    def give_back(self, sentences: int) -> None:
        if sentences:  # a record with sentences in flight stays where it is
            self._records.add(self._record, self._front_end, -sentences)
