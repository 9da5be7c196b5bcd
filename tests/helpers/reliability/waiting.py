"""Waiting for what has no event: processes that come back, and figures that another process shows."""

import asyncio
import time
from collections.abc import Callable

_LOOK = 0.1  # between two looks [seconds]


async def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Whether `condition`, which may block, comes true within `seconds`, and waits for it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if await asyncio.to_thread(condition):
            return True
        await asyncio.sleep(_LOOK)
    return False
