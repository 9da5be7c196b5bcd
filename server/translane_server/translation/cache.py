"""The cache of translations: what a text was translated to, if the same text is asked for again in the same way."""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

from pydantic import ConfigDict, TypeAdapter

from translane.requests import TranslationRequest
from translane.results import Translation
from translane_server.text.glossaries import StoredGlossaries
from translane_server.translation.options import is_sampled
from translane_server.translation.terms import most_reports

_KEY_BYTES = 32  # of a digest: nobody finds two texts with the same one
_LENGTH_BYTES = 8

_written = lru_cache(128)(repr)  # options, as they are written into keys

# What one request may get from the cache [bytes]. A short text may have a long translation, and may come many times in
# a request. The texts beyond count as unknown.
_MOST_RECALLED = 1 << 21

# What the table takes for an entry beside its key and its translation [bytes]: a place in a hash table that may be two
# thirds empty, a link to its neighbours, and what the allocator rounds up.
_OVERHEAD = 240

# The largest translation that is kept: this part of the bytes, and this many bytes at most. A few long texts must not
# drive out all others, and one drives out so few others that the event loop waits a millisecond or two.
_LARGEST_PART = 8
_LARGEST = 1 << 20

_NO_GLOSSARIES = StoredGlossaries()

CountTexts = Callable[[int, int], None]
"""Is told how many texts of an answered request were in the cache, and how many were not."""


@cache
def _json() -> TypeAdapter[list[Translation]]:
    """Return what writes and reads kept translations: bytes are smaller than objects, and no work for the collector.

    To make it takes milliseconds. It is one of lists, because a dataclass has settings of its own. JSON has no
    infinity, which a log-probability may be.
    """
    return TypeAdapter(list[Translation], config=ConfigDict(ser_json_inf_nan="constants"))


class TranslationStore:
    """Keeps translations by their keys, and forgets those that nobody has asked for the longest (LRU).

    All entries take at most `limit` bytes, with what Python takes for them. All calls come from one thread.
    """

    def __init__(self, limit: int, count_evictions: Callable[[int], None] = lambda _count: None) -> None:
        self._limit = limit
        self._count_evictions = count_evictions
        self._packed: OrderedDict[bytes, bytes] = OrderedDict()
        self.bytes = 0  # what all entries take now [bytes]

    def __len__(self) -> int:
        return len(self._packed)

    def get(self, key: bytes) -> bytes | None:
        """Return the translation of a key, which is now the last one that was asked for; None if there is none."""
        packed = self._packed.get(key)
        if packed is not None:
            self._packed.move_to_end(key)
        return packed

    def put(self, key: bytes, packed: bytes) -> None:
        """Keep a translation, unless it takes more than an eighth of all bytes, or than a mebibyte."""
        size = _size(key, packed)
        if size > min(self._limit // _LARGEST_PART, _LARGEST):
            return
        entries = self._packed
        if (before := entries.pop(key, None)) is not None:
            self.bytes -= _size(key, before)
        entries[key] = packed
        self.bytes += size
        evicted = 0
        while self.bytes > self._limit:
            self.bytes -= _size(*entries.popitem(last=False))
            evicted += 1
        if evicted:
            self._count_evictions(evicted)

    def close(self) -> None:
        """Forget all translations, and keep none from now on."""
        self._limit = self.bytes = 0
        self._packed.clear()


def _size(key: bytes, packed: bytes) -> int:
    return sys.getsizeof(key) + sys.getsizeof(packed) + _OVERHEAD


@dataclass(slots=True)
class Recalled:
    """A request, and what is known of the translations of its texts."""

    # The request that is left to translate: texts that are known are empty in it. So the numbers of texts, and limits
    # that depend on their count, stay the same.
    request: TranslationRequest
    size: int  # of the translations that are known [bytes]
    _keys: Sequence[bytes]
    _known: Mapping[int, bytes]  # the translations, packed, by the numbers of their texts
    _store: TranslationStore
    _count_texts: CountTexts
    _new: list[tuple[bytes, bytes]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many texts are known."""
        return len(self._known)

    def whole(self, translations: list[Translation], unsettled: Container[int] = ()) -> list[Translation]:
        """Return the translations of all texts, by those of `request`. Many take too long for the event loop.

        Those of the `unsettled` texts, by their numbers, are not kept.
        """
        known, whole = self._known, []
        for number, (key, translation) in enumerate(zip(self._keys, translations, strict=True)):
            if (packed := known.get(number)) is None:
                if number not in unsettled:
                    self._new.append((key, _json().dump_json([translation], exclude_defaults=True)))
                whole.append(translation)
            else:
                whole += _json().validate_json(packed)
        return whole

    def keep(self) -> None:
        """Keep what `whole` was called with, for other requests. This is cheap, and done on the event loop."""
        self._count_texts(self.count, len(self._keys) - self.count)
        for key, packed in self._new:
            self._store.put(key, packed)


class TranslationCache:
    """The translations of one version of a model. A text finds only translations that it would get from the model anew.

    Translations depend on nothing but the text, the version, and what a key has: languages, options, format, and the
    stored glossaries. Samples without a seed are other ones each time, and are not kept. A version has a cache of its
    own, which ends with it.

    All calls come from one event loop.

    The translations take at most `limit` bytes. A `shared` cache has one caller's translations for all others. The
    `stored` glossaries of the server are other ones after a change.
    """

    def __init__(
        self,
        limit: int,
        *,
        shared: bool = False,
        stored: Callable[[], StoredGlossaries] = lambda: _NO_GLOSSARIES,
        count_texts: CountTexts = lambda _known, _others: None,
        count_evictions: Callable[[int], None] = lambda _count: None,
    ) -> None:
        _json()  # now, and not in a request
        self.store = TranslationStore(limit, count_evictions)
        self._shared = shared
        self._stored = stored
        self._count_texts = count_texts
        self._glossaries: StoredGlossaries | None = None
        self._changes = 0  # of the stored glossaries

    def recall(self, request: TranslationRequest, caller: str) -> Recalled | None:
        """Return what is known of a request; None if its translations are not kept.

        Its sizes are checked already. The time grows with its bytes.
        """
        options = request.options
        is_random = is_sampled(options) and options.seed is None
        # A stream with several hypotheses is refused, whatever is known of its text.
        if is_random or (request.streamed and (options.num_hypotheses or 1) > 1):
            return None
        keys = self._keys(request, caller)
        known: dict[int, bytes] = {}
        left = _MOST_RECALLED
        for number, key in enumerate(keys):
            packed = self.store.get(key)
            if packed is not None and len(packed) <= left:
                known[number] = packed
                left -= len(packed)
        if known:
            texts = ["" if number in known else text for number, text in enumerate(request.texts)]
            request = replace(request, texts=texts)
        size = _MOST_RECALLED - left
        return Recalled(request, size, keys, known, self.store, self._count_texts)

    def close(self) -> None:
        """Forget all translations, and keep none from now on: no new request uses this version."""
        self.store.close()

    def _keys(self, request: TranslationRequest, caller: str) -> list[bytes]:
        """Return the key of each text: a digest of all that decides its translation, and of who may see it."""
        options = request.options
        texts = request.texts
        has_terms = bool(options.terminology or options.glossaries)
        common = repr(
            (
                "" if self._shared else caller,
                request.source_language,
                request.target_language,
                str(request.format),
                _written(options),
                most_reports(len(texts)) if has_terms else 0,
                self._glossary_changes() if options.glossaries else 0,
            )
        ).encode()
        start = hashlib.blake2b(len(common).to_bytes(_LENGTH_BYTES) + common, digest_size=_KEY_BYTES)
        keys = []
        for text in texts:
            digest = start.copy()
            digest.update(text.encode())
            keys.append(digest.digest())
        return keys

    def _glossary_changes(self) -> int:
        """Return how often the stored glossaries have changed. A request that is read later sees these or newer ones.

        A translation with newer ones is kept under a key that nobody looks up any more.
        """
        stored = self._stored()
        if stored is not self._glossaries:
            self._glossaries = stored
            self._changes += 1
        return self._changes
