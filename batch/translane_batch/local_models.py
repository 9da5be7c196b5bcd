"""Translates within this process, as a client does with servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from translane import errors
from translane.options import Format, checked_options
from translane.requests import TranslationRequest
from translane.results import Translation
from translane_server.core.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    QueueFullError,
    RequestError,
    UnavailableError,
)
from translane_server.models.registry import Registry

# The client's errors, which say what a caller can do; every other one is of the model.
_ERRORS: dict[type[RequestError], type[errors.TranslaneError]] = {
    InvalidRequestError: errors.InvalidArgument,
    ModelNotFoundError: errors.NotFound,
    QueueFullError: errors.QueueFull,
    UnavailableError: errors.Unavailable,
}


class LocalModels:
    """Models of this process, with the methods of `AsyncClient` that a run needs.

    Args:
        models: the loaded models.
    """

    def __init__(self, models: Registry) -> None:
        self._models = models

    async def translate_iter(
        self,
        texts: Sequence[str],
        *,
        model: str = "",
        source_language: str = "",
        target_language: str = "",
        format: Format | str = Format.TEXT,
        timeout: float | None = None,  # noqa: ASYNC109  the client's name
        **options: Any,
    ) -> AsyncIterator[Translation]:
        """See `AsyncClient.translate_iter`.

        Raises:
            TranslaneError: the texts cannot be translated.
        """
        request = TranslationRequest(
            texts, model, source_language, target_language, checked_options(options), format=format
        )
        try:
            async with asyncio.timeout(timeout):
                answer = await self._models.translator(request).translate(request)
        except TimeoutError:
            raise errors.DeadlineExceeded(f"not translated within {timeout:g} seconds") from None
        except RequestError as error:
            raise _error_of(error) from None
        for translation in answer.translations:
            yield translation


def _error_of(error: RequestError) -> errors.TranslaneError:
    violations = error.violations if isinstance(error, InvalidRequestError) else ()
    kind = _ERRORS.get(type(error), errors.Internal)
    return kind(
        str(error),
        reason=error.reason,
        violations=tuple(errors.FieldViolation(each.field, each.description) for each in violations),
    )
