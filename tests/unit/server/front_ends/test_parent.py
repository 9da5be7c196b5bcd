"""How the parent waits for front ends that drain."""

import asyncio
import gc
from unittest import mock

from fakes.serving import make_settings
from translane_server.front_ends import parent as parent_module
from translane_server.front_ends.parent import Parent


async def test_a_front_end_that_never_drains_is_waited_for_no_longer_than_allowed(monkeypatch):
    monkeypatch.setattr(parent_module, "available_cpus", lambda: 2)
    monkeypatch.setattr(parent_module, "_CLOSING_TIME", 0)
    loop = asyncio.get_running_loop()
    complaints = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    drained = loop.create_future()
    drained.set_result(True)
    both = [mock.Mock(drained=drained), mock.Mock(drained=loop.create_future())]
    parent = Parent(make_settings(front_ends=2, replicas=2))
    hurry = asyncio.Event()
    hurry.set()
    for hurrying in (None, hurry):
        assert await parent._drained(both[:1], 0.01, hurrying)
        assert not await parent._drained(both, 0.01, hurrying)
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []
