"""Engines of Ray Serve are killed, replaced and updated, and callers do not try again. No call is lost."""

import asyncio
from functools import partial

import psutil
import pytest

from helpers.reliability.form import form
from helpers.reliability.load import Load
from helpers.reliability.versions import ModelFolder, served_versions
from helpers.reliability.waiting import within
from helpers.server_process import BUNDLE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(form(580, 1800))]

ENGINE = ("--replicas=1", "--threads=1", "--metrics-port=0")
DEMO = (f"{BUNDLE}", *ENGINE)
CALLERS = 6
FAULTS = form(2, 10)
BETWEEN = 20  # answers between two faults
DEADLINE = 90.0  # of a call [seconds]
RECOVERY = 60.0  # until Serve has replaced what was lost [seconds]


@pytest.fixture
def serving(ray_cluster):
    """Ray, where each test deploys the application as it needs it."""
    return ray_cluster


@pytest.fixture
def unary(oracle):
    """The cases that the proxy repeats in any case; a stream that has begun it repeats for nobody."""
    return [case for case in oracle.cases if not case.is_stream]


async def deploy(serving, argv, replicas=1, change=lambda _: None):
    """Have the application with these arguments and so many Serve replicas, and none of another test."""
    await asyncio.to_thread(serving.deploy, [*argv, f"--serve-replicas={replicas}"], change)
    assert await within(RECOVERY, lambda: len(serving.replicas()) == replicas)


def pids(serving):
    return {each.pid for each in serving.replicas()}


def has_new(serving, before):
    """Whether exactly one Serve replica has come since `before`."""
    return len(pids(serving) - before) == 1


def add_figures(figures, load, **faults):
    calls = load.answered + load.refused.total() + load.lost
    figures.add(callers=CALLERS, faults=faults, calls=calls, **load.figures)


@pytest.mark.parametrize("replicas", form([1], [1, 2]))  # a call that is lost has nowhere to go but the successor
async def test_a_killed_engine_loses_no_call(serving, oracle, unary, figures, replicas):
    """One engine's calls wait for its successor, without a retry of the caller."""
    await deploy(serving, DEMO, replicas)
    came = []
    async with Load(serving.address, oracle, CALLERS, cases=unary, timeout=DEADLINE) as load:
        for _ in range(FAULTS):
            await load.wait_for_answers(BETWEEN)
            before = pids(serving)
            serving.replicas()[0].kill()
            came.append(await load.lightly(within(RECOVERY, partial(has_new, serving, before))))
        await load.wait_for_answers(BETWEEN)
    add_figures(figures, load, killed=FAULTS)
    assert all(came)
    load.assert_nothing_lost(BETWEEN * (FAULTS + 1))


async def test_streams_of_a_killed_engine_are_refused_in_the_promised_form(serving, oracle, figures):
    await deploy(serving, DEMO, 2)
    before = pids(serving)
    async with Load(serving.address, oracle, CALLERS, timeout=DEADLINE) as load:
        await load.wait_for_answers(BETWEEN)
        serving.replicas()[0].kill()
        await load.wait_for_answers(2 * BETWEEN)
        assert await load.lightly(within(RECOVERY, partial(has_new, serving, before)))
    add_figures(figures, load, killed=1)
    assert load.lost == 0
    assert set(load.refused) <= {"UNAVAILABLE(UNAVAILABLE)"}


@pytest.mark.parametrize("replicas", form([1], [1, 2]))
async def test_new_settings_roll_out_without_a_failed_call(serving, oracle, figures, replicas):
    """And nothing is left of the engines that had the old settings."""
    await deploy(serving, DEMO, replicas)
    before = pids(serving)
    processes = [process for each in serving.replicas() for process in (each, *each.children(recursive=True))]
    assert len(processes) > replicas
    async with Load(serving.address, oracle, CALLERS, timeout=DEADLINE) as load:
        await load.wait_for_answers(BETWEEN)
        await load.lightly(deploy(serving, [*DEMO, "--max-priority=3"], replicas))
        assert await load.lightly(within(RECOVERY, lambda: not before & pids(serving)))
        await load.wait_for_answers(BETWEEN)
    add_figures(figures, load, deployed=1)
    assert (load.lost, load.refused) == (0, {})
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, timeout=20)
    assert alive == []


async def test_a_new_version_of_a_model_takes_over_in_a_running_engine(serving, tmp_path, oracle, figures):
    models = ModelFolder(tmp_path / "models")
    models.publish()
    argv = [f"--models={models.folder}", *ENGINE]
    await deploy(serving, argv)
    (engine,) = pids(serving)
    async with Load(serving.address, oracle, CALLERS, timeout=DEADLINE) as load:
        await load.wait_for_answers(BETWEEN)
        version = models.publish()
        await deploy(serving, argv, change=lambda each: each["user_config"].update(reload=2))
        assert await within(RECOVERY, lambda: served_versions(serving.address) == [version])
        await load.wait_for_answers(BETWEEN)
        models.publish_broken("weights.bin")
        await deploy(serving, argv, change=lambda each: each["user_config"].update(reload=3))
        await load.wait_for_answers(BETWEEN)
    add_figures(figures, load, reloaded=2)
    assert await asyncio.to_thread(served_versions, serving.address) == [version]
    assert pids(serving) == {engine}
    assert (load.lost, load.refused) == (0, {})


async def test_rows_decide_how_many_engines_there_are(serving, oracle, unary, figures):
    """Serve looks at the figures every second here, and acts at once."""
    quick = {"upscale_delay_s": 0.0, "downscale_delay_s": 2.0, "look_back_period_s": 3.0, "metrics_interval_s": 1.0}
    argv = [*DEMO, "--max-batch-size=8", "--max-serve-replicas=2", "--target-load=0.5"]
    await deploy(serving, argv, change=lambda each: each["autoscaling_config"].update(quick))
    async with Load(serving.address, oracle, CALLERS, cases=unary, timeout=DEADLINE) as load:
        assert await within(RECOVERY, lambda: len(serving.replicas()) == 2)
        await load.wait_for_answers(BETWEEN)
    assert await within(RECOVERY, lambda: len(serving.replicas()) == 1)
    add_figures(figures, load, scaled=2)
    assert load.lost == 0
