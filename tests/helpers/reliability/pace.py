"""How soon the callers of a load call again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from helpers.reliability.form import form

_Value = TypeVar("_Value")

_REST = form(0.2, 0.0)  # after each call [seconds]


class Pace:
    """The pace of callers: each calls again as soon as it is answered, unless the load is to be light."""

    _rest = 0.0

    async def lightly(self, waiting: Awaitable[_Value]) -> _Value:
        """Wait for something, and have the callers rest between calls: what starts again has the processors."""
        self._rest = _REST
        try:
            return await waiting
        finally:
            self._rest = 0.0

    async def _have_rested(self) -> None:
        if self._rest:
            await asyncio.sleep(self._rest)
