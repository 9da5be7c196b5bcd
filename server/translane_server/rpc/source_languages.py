"""Finds the languages of the texts of a request whose source language is ``auto``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from translane.v1 import translation_pb2 as pb
from translane_server.budget import Budget, OverBudgetError
from translane_server.models.registry import Registry
from translane_server.requests.limits import TranslationRequest, takes_too_long
from translane_server.rpc.text_workers import TextWorkers
from translane_server.text.language_id import LanguageIdentifier

# The work of finding the language of a short text [bytes of a request that take as long to read].
_WORK_OF_A_TEXT = 128


# Tags of markup. Their names and attributes belong to no language.
_TAG = re.compile("<[^<>]*+>")


class SourceLanguages:
    """Finds languages among those that the models can translate. The identifier is loaded at its first use.

    Args:
        models: the models of the server.
        workers: do the work.
    """

    def __init__(self, models: Registry, workers: TextWorkers) -> None:
        self._models = models
        self._workers = workers
        self._identifier: LanguageIdentifier | None = None
        self._loading = asyncio.Lock()

    async def find(self, request: TranslationRequest, texts: Sequence[str], caller: str) -> list[str]:
        """Return the language of each text, among those that can be translated to the request's target language.

        Args:
            request: the request.
            texts: the texts of the request.
            caller: who asks.

        Raises:
            RequestError: no language can be translated, the identifier is not installed, or finding takes too long.
        """
        candidates = self._models.source_languages(request.model, request.target_language)
        if len(candidates) == 1:
            return [candidates[0]] * len(texts)
        identifier = await self._loaded()

        def find(budget: Budget) -> list[str]:
            try:
                written = [_TAG.sub(" ", text) for text in texts] if request.format else texts
                return identifier.find(written, candidates, budget)
            except OverBudgetError:
                field = "texts" if isinstance(request, pb.TranslateRequest) else "text"
                raise takes_too_long(field, budget) from None

        return await self._workers.read(request.ByteSize() + _WORK_OF_A_TEXT * len(texts), find, caller)

    async def _loaded(self) -> LanguageIdentifier:
        async with self._loading:
            if self._identifier is None:
                self._identifier = await asyncio.to_thread(LanguageIdentifier)
            return self._identifier
