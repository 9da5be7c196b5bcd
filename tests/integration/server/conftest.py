"""The event loop of these tests is the one that serves; see `translane_server.app.lifetime`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], uvloop.Loop]]:
    return {"uvloop": uvloop.new_event_loop}
