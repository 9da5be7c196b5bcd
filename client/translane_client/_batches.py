"""Cuts the items of a long list into batches: a batch travels in one request."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Generic

from translane_client._requests import Batch, Item

MOST_BYTES = 1 << 20
"""The largest request that the client makes of several items. A server takes as much by default."""

_ITEM_BYTES = 32
"""What an item takes in a message beside its text: tags and lengths of it and of its parts, at the most."""
_LEAST_BYTES = 1 << 14


def batches(
    items: Iterable[Item], size: int, size_of: Callable[[Item], int], overhead: int = 0
) -> Iterator[Batch[Item]]:
    """Batches of `items`, which are read only as far as batches are taken.

    Args:
        items: What to cut, in order.
        size: Most items of a batch.
        size_of: The bytes of an item. The request of a batch of several items has at most MOST_BYTES.
        overhead: The bytes of a request without items.
    """
    gatherer = _Gatherer(size, size_of, overhead)
    for item in items:
        yield from gatherer.add(item)
    yield from gatherer.rest()


async def async_batches(
    items: Iterable[Item] | AsyncIterable[Item], size: int, size_of: Callable[[Item], int], overhead: int = 0
) -> AsyncIterator[Batch[Item]]:
    """As `batches`, for either kind of iterable."""
    if not isinstance(items, AsyncIterable):
        for batch in batches(items, size, size_of, overhead):
            yield batch
        return
    gatherer = _Gatherer(size, size_of, overhead)
    async for item in items:
        for batch in gatherer.add(item):
            yield batch
    for batch in gatherer.rest():
        yield batch


class _Gatherer(Generic[Item]):
    def __init__(self, size: int, size_of: Callable[[Item], int], overhead: int) -> None:
        self._most = max(_LEAST_BYTES, MOST_BYTES - overhead)
        self._size = size
        self._size_of = size_of
        self._items = list[Item]()
        self._bytes = 0
        self._offset = 0

    def add(self, item: Item) -> Iterator[Batch[Item]]:
        """Takes one more item; yields each batch that the item completes or finds full."""
        size = self._size_of(item) + _ITEM_BYTES
        if self._bytes + size > self._most:
            yield from self.rest()
        self._items.append(item)
        self._bytes += size
        if len(self._items) == self._size:
            yield from self.rest()

    def rest(self) -> Iterator[Batch[Item]]:
        """Yields the items gathered so far as a batch, if there are any."""
        if self._items:
            batch = Batch(self._items, self._offset)
            self._offset += len(self._items)
            self._items, self._bytes = [], 0
            yield batch
