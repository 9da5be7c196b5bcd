"""The cache of answers: what a text was translated to, if the same text is asked for again in the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from translane.v1 import translation_pb2 as pb
from translane_server.requests.answer_store import AnswerStore
from translane_server.requests.kept_terms import most_reports
from translane_server.requests.limits import TranslationRequest
from translane_server.requests.option_checks import is_sampled
from translane_server.text.stored_glossaries import StoredGlossaries

_KEY_BYTES = 32  # of a digest: nobody finds two texts with the same one
_LENGTH_BYTES = 8

# What one request may get from the cache [bytes]. A short text may have a long answer, and may come many times in a
# request. The texts beyond count as unknown.
_MOST_RECALLED = 1 << 21

_NO_GLOSSARIES = StoredGlossaries()

CountTexts = Callable[[int, int], None]
"""Is told how many texts of an answered request were in the cache, and how many were not."""


class Recalled:
    """A request, and what is known of the translations of its texts.

    Args:
        request: the request as its caller sent it.

    Attributes:
        request: what is left to translate: the request, with empty texts in the places of those that are known. So
            numbers of texts, and limits that depend on how many there are, stay what they are.
        count: how many texts are known.
        size: of the answers that are known [bytes].
    """

    __slots__ = ("count", "request", "size")

    def __init__(self, request: TranslationRequest) -> None:
        self.request = request
        self.count = self.size = 0

    def whole(self, translations: list[pb.Translation]) -> list[pb.Translation]:
        """Return the translations of all texts. A large request takes too long for the event loop.

        Args:
            translations: those of the texts of `request`. Those of known texts do not count.
        """
        return translations

    def keep(self) -> None:
        """Keep what `whole` was called with, for other requests. This is cheap, and done on the event loop."""


class AnswerCache:
    """The answers of one version of a model. A text finds only answers that it would get from the model anew.

    Translations depend on nothing but the text, the version, and what a key has: languages, options, format, and the
    stored glossaries. Samples without a seed are other ones each time, and are not kept. A version has a cache of its
    own, which ends with it.

    All calls come from one event loop.

    Args:
        limit: most bytes of the answers in memory.
        shared: whether callers find the answers of other callers.
        stored: returns the glossaries of the server. They are other ones after a change.
        count_texts: counts texts of answered requests.
        count_evictions: is told how many answers were forgotten for others.
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
        self.store = AnswerStore(limit, count_evictions)
        self._shared = shared
        self._stored = stored
        self._count_texts = count_texts
        self._glossaries: StoredGlossaries | None = None
        self._changes = 0  # of the stored glossaries

    def recall(self, request: TranslationRequest, caller: str) -> Recalled:
        """Find what is known of a request. Its sizes are checked already. The time grows with the request's bytes.

        Args:
            request: the request.
            caller: who asks.
        """
        options = request.options
        is_random = is_sampled(options) and not options.HasField("seed")
        # A stream with several hypotheses is refused, whatever is known of its text.
        if is_random or (isinstance(request, pb.TranslateStreamRequest) and options.num_hypotheses > 1):
            return Recalled(request)
        keys = self._keys(request, caller)
        known: dict[int, bytes] = {}
        left = _MOST_RECALLED
        for number, key in enumerate(keys):
            answer = self.store.get(key)
            if answer is not None and len(answer) <= left:
                known[number] = answer
                left -= len(answer)
        return _Kept(request, keys, known, self.store, self._count_texts)

    def close(self) -> None:
        """Forget all answers, and keep none from now on: no new request uses this version."""
        self.store.close()

    def _keys(self, request: TranslationRequest, caller: str) -> list[bytes]:
        """Return the key of each text: a digest of all that decides its translation, and of who may see it."""
        options = request.options
        texts = request.texts if isinstance(request, pb.TranslateRequest) else [request.text]
        has_terms = bool(options.terminology or options.glossaries)
        common = repr(
            (
                "" if self._shared else caller,
                request.source_language,
                request.target_language,
                request.format,
                options.SerializeToString(deterministic=True),
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

        An answer with newer ones is kept under a key that nobody looks up any more.
        """
        stored = self._stored()
        if stored is not self._glossaries:
            self._glossaries = stored
            self._changes += 1
        return self._changes


class _Kept(Recalled):
    """A request whose translations are kept.

    Args:
        request: the request as its caller sent it.
        keys: the key of each text.
        known: the serialized translations that are known, by the numbers of their texts.
        store: keeps the others.
        count_texts: counts both.
    """

    __slots__ = ("_count_texts", "_keys", "_known", "_new", "_store")

    def __init__(
        self,
        request: TranslationRequest,
        keys: Sequence[bytes],
        known: Mapping[int, bytes],
        store: AnswerStore,
        count_texts: CountTexts,
    ) -> None:
        super().__init__(_without(request, known) if known else request)
        self.count = len(known)
        self.size = sum(map(len, known.values()))
        self._keys = keys
        self._known = known
        self._new: list[tuple[bytes, bytes]] = []
        self._store = store
        self._count_texts = count_texts

    def whole(self, translations: list[pb.Translation]) -> list[pb.Translation]:
        known, whole = self._known, []
        for number, (key, translation) in enumerate(zip(self._keys, translations, strict=True)):
            if (answer := known.get(number)) is None:
                self._new.append((key, translation.SerializeToString()))
                whole.append(translation)
            else:
                whole.append(pb.Translation.FromString(answer))
        return whole

    def keep(self) -> None:
        self._count_texts(self.count, len(self._new))
        for key, answer in self._new:
            self._store.put(key, answer)


def _without(request: TranslationRequest, known: Iterable[int]) -> TranslationRequest:
    """Return a request with empty texts in the places of those that are known."""
    if isinstance(request, pb.TranslateStreamRequest):
        stream = pb.TranslateStreamRequest()
        stream.CopyFrom(request)
        stream.text = ""
        return stream
    others = pb.TranslateRequest()
    others.CopyFrom(request)
    for number in known:
        others.texts[number] = ""
    return others
