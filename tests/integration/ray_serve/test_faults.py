"""Engines are killed, replaced and updated under load: no call is lost, and no answer differs."""

import asyncio
import time

import psutil
import pytest

pytest.importorskip("ray.serve", reason="Ray is not installed")
pytest.importorskip("yaml", reason="the extra ray is not installed")

from helpers.ray_cluster.serve import ray_serve
from helpers.reliability.answers import Oracle
from helpers.reliability.cases import make_cases, single
from helpers.reliability.load import Load
from helpers.reliability.server_process import BUNDLE, running_server
from helpers.reliability.versions import ModelFolder, served_versions
from translane.v1 import translation_pb2 as pb

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree"),
]

ENGINE = ["--replicas", "1", "--threads", "1", "--metrics-port", "0"]
CALLERS = 6
RECOVERY = 60.0  # [seconds]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("oracle") / "log") as server:
        return Oracle(server.address, [*make_cases(16), single()])


@pytest.fixture
def unary(oracle):
    """The cases that the proxy repeats in any case; a stream that has begun it repeats for nobody."""
    return [case for case in oracle.cases if not isinstance(case.request, pb.TranslateStreamRequest)]


async def until(holds, seconds=RECOVERY):
    end = time.monotonic() + seconds
    while not (found := await asyncio.to_thread(holds)):
        assert time.monotonic() < end
        await asyncio.sleep(0.2)
    return found


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_killed_engine_loses_no_call(tmp_path, oracle, unary, replicas):
    """One engine's calls wait for its successor, without a retry of the caller."""
    with ray_serve(tmp_path, ["--model", str(BUNDLE), *ENGINE, "--serve-replicas", str(replicas)]) as running:
        async with Load(running.address, oracle, CALLERS, cases=unary, timeout=90) as load:
            for _ in range(2):
                await load.wait_for_answers(20)
                before = {each.pid for each in running.replicas()}
                victim = running.replicas()[0]
                victim.kill()
                await until(lambda b=before: len({each.pid for each in running.replicas()} - b) == 1)
            await load.wait_for_answers(20)
    print(load.figures)
    assert load.answered >= 60
    assert load.lost == 0
    assert load.refused == {}


async def test_streams_of_a_killed_engine_are_refused_in_the_promised_form(tmp_path, oracle):
    with ray_serve(tmp_path, ["--model", str(BUNDLE), *ENGINE, "--serve-replicas", "2"]) as running:
        async with Load(running.address, oracle, CALLERS, timeout=90) as load:
            await load.wait_for_answers(20)
            running.replicas()[0].kill()
            await load.wait_for_answers(40)
    print(load.figures)
    assert load.lost == 0
    assert set(load.refused) <= {"UNAVAILABLE(UNAVAILABLE)"}


@pytest.mark.parametrize("replicas", [1, 2])
async def test_new_settings_roll_out_without_a_failed_call(tmp_path, oracle, replicas):
    argv = ["--model", str(BUNDLE), *ENGINE, "--serve-replicas", str(replicas)]
    with ray_serve(tmp_path, argv) as running:
        before = {each.pid for each in running.replicas()}
        async with Load(running.address, oracle, CALLERS, timeout=90) as load:
            await load.wait_for_answers(20)
            await asyncio.to_thread(running.deploy, [*argv, "--max-priority", "3"])
            await until(lambda: not before & {each.pid for each in running.replicas()})
            await load.wait_for_answers(20)
        assert len(running.replicas()) == replicas
    print(load.figures)
    assert load.lost == 0
    assert load.refused == {}


async def test_a_new_version_of_a_model_takes_over_in_a_running_engine(tmp_path, oracle):
    models = ModelFolder(tmp_path / "models")
    models.publish()
    argv = ["--models", str(models.folder), *ENGINE]
    with ray_serve(tmp_path, argv) as running:
        (engine,) = running.replicas()
        async with Load(running.address, oracle, CALLERS, timeout=90) as load:
            await load.wait_for_answers(10)
            version = models.publish()
            await asyncio.to_thread(running.deploy, argv, lambda each: each["user_config"].update(reload=2))
            await until(lambda: served_versions(running.address) == [version])
            await load.wait_for_answers(10)
            models.publish_broken("weights.bin")
            await asyncio.to_thread(running.deploy, argv, lambda each: each["user_config"].update(reload=3))
            await load.wait_for_answers(20)
        assert await asyncio.to_thread(served_versions, running.address) == [version]
        assert [each.pid for each in running.replicas()] == [engine.pid]
    assert load.lost == 0
    assert load.refused == {}


async def test_rows_decide_how_many_engines_there_are(tmp_path, oracle, unary):
    """Serve looks at the figures every second here, and acts at once."""
    quick = {"upscale_delay_s": 0.0, "downscale_delay_s": 2.0, "look_back_period_s": 3.0, "metrics_interval_s": 1.0}
    argv = ["--model", str(BUNDLE), *ENGINE, "--rows", "8", "--max-serve-replicas", "2", "--target-load", "0.5"]
    with ray_serve(tmp_path, argv, change=lambda each: each["autoscaling_config"].update(quick)) as running:
        assert len(running.replicas()) == 1
        async with Load(running.address, oracle, CALLERS, cases=unary, timeout=90) as load:
            await until(lambda: len(running.replicas()) == 2)
            await load.wait_for_answers(20)
        await until(lambda: len(running.replicas()) == 1)
    assert load.lost == 0


def test_nothing_is_left_when_serve_ends(tmp_path):
    with ray_serve(tmp_path, ["--model", str(BUNDLE), *ENGINE]) as running:
        (engine,) = running.replicas()
        processes = [engine, *engine.children(recursive=True)]
        assert len(processes) > 1
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []
