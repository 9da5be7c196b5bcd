"""SIGHUP under load: a new version takes over in one moment, and no call is lost."""

import asyncio
import signal

import pytest

from helpers.reliability.bounds import RECOVERY
from helpers.reliability.chaos import Chaos
from helpers.reliability.form import form
from helpers.reliability.load import Load
from helpers.reliability.probe import bystander
from helpers.reliability.resources import MEGABYTE, holdings
from helpers.reliability.versions import ModelFolder, served_versions
from helpers.reliability.waiting import within

pytestmark = pytest.mark.timeout(form(150, 600))

RELOADS = form(2, 10)
LOADING_TIME = 60.0  # [seconds]
TOLD_AGAIN = 3.0  # until the server is told to reload once more [seconds]


@pytest.fixture
def models(tmp_path):
    found = ModelFolder(tmp_path / "models")
    found.publish()
    return found


def held(server):
    return holdings([server.pid, *(process.pid for process in server.descendants())])


async def held_at_last(server, processes):
    """What the server holds when an old version's last processes have ended, or have not within the time."""
    await within(LOADING_TIME, lambda: held(server).processes <= processes)
    return held(server)


async def is_served(server, version, seconds=LOADING_TIME):
    """Whether a version is the served one within the time, and waits for it."""
    return await within(seconds, lambda: served_versions(server.address) == [version])


@pytest.mark.slow
async def test_a_new_version_takes_over_without_a_lost_call(start, models, oracle, figures):
    with start(f"--models={models.folder}") as server, bystander(server.address) as seen:
        async with Load(server.address, oracle, callers=8, timeout=60) as load:
            await load.wait_for_answers(form(10, 20))
            before = held(server)
            for _ in range(RELOADS):
                version = models.publish()
                server.process.send_signal(signal.SIGHUP)
                is_new = await is_served(server, version)
                if not is_new:
                    break
                await load.wait_for_answers(form(10, 20))
            after = await held_at_last(server, before.processes)
    growth = (after.bytes - before.bytes) / MEGABYTE
    figures.add(
        reloads=RELOADS, is_new=is_new, growth_MiB=growth, files_more=after.files - before.files, **load.figures,
        **seen.figures,
    )  # fmt: skip
    assert is_new
    assert load.lost == 0
    assert load.refused == {}
    assert not seen.failed
    assert after.processes == before.processes
    assert growth < 64
    assert after.files <= before.files + 8


@pytest.mark.slow
@pytest.mark.parametrize("moment", form([0.3], [0.0, 0.3, 0.6, 0.9, 1.2]))
async def test_a_replica_that_is_killed_during_a_reload_loses_nothing(start, models, oracle, figures, moment):
    """The replica may be of the version that serves, or of the one that is loading, which is then refused."""
    with start(f"--models={models.folder}") as server:
        async with Load(server.address, oracle, callers=8, timeout=60) as load:
            await load.wait_for_answers(10)
            chaos = Chaos(server)
            old = {process.pid for process in server.replicas()}
            version = models.publish()
            server.process.send_signal(signal.SIGHUP)
            chaos.kill(chaos.a_replica())  # of the version that serves
            await asyncio.sleep(moment)
            chaos.kill([process for process in server.replicas() if process.pid not in old][:1])
            await load.wait_for_answers(10)
            is_new = await is_served(server, version, seconds=TOLD_AGAIN)
            if not is_new:
                server.process.send_signal(signal.SIGHUP)
                is_new = await is_served(server, version)
            back = await chaos.recovered(RECOVERY)
            await load.wait_for_answers(10)
    figures.add(killed_after_s=moment, is_new=is_new, all_back=back, **chaos.figures, **load.figures)
    assert is_new
    assert back
    assert load.lost == 0
    assert load.refused == {}
