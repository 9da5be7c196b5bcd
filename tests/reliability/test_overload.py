"""More than the server can do: each call is answered rightly, or refused with RetryInfo."""

import asyncio
import contextlib

import pytest

from helpers.reliability.bounds import MEMORY_GROWTH
from helpers.reliability.form import form
from helpers.reliability.load import Load
from helpers.reliability.resources import watched_memory

pytestmark = pytest.mark.timeout(150)

WAITING = 64  # sentences


@pytest.mark.slow
async def test_ten_times_the_load_is_answered_or_refused(start, oracle, figures):
    callers = form(64, 256)
    many = [case for case in oracle.cases if case.name.startswith("many")]  # 24 texts each
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start(f"--max-queue-size={WAITING}", f"--max-request-texts={WAITING}"))
        memory = stack.enter_context(watched_memory(server.pid))
        async with Load(server.address, oracle, callers, cases=many) as load:
            await asyncio.sleep(form(2, 60))
    figures.add(callers=callers, sentences_asked=24 * callers, can_wait=WAITING, **load.figures, **memory.figures)
    assert load.answered > 0
    assert load.refused.total() > 0
    assert load.lost == 0
    assert memory.growth < MEMORY_GROWTH
