"""A cluster of Ray whose nodes are lost under load, each with its Serve replica and its proxy. No call is lost."""

import asyncio

import psutil
import pytest

pytest.importorskip("ray.serve", reason="the extra ray is not installed")
pytest.importorskip("helpers.ray_serve")

from helpers.ray_nodes import ray_nodes
from helpers.ray_serve import ray_serve
from helpers.reliability.client_load import ClientLoad
from helpers.reliability.form import form
from helpers.reliability.server_process import BUNDLE
from helpers.reliability.waiting import within

pytestmark = [pytest.mark.slow, pytest.mark.timeout(form(280, 1800))]

CALLERS = 8
FAULTS = form(2, 10)
BETWEEN = 40  # answers between two faults
DEADLINE = 120.0  # of a call [seconds]
RECOVERY = 90.0  # until a node that has joined has a Serve replica [seconds]


async def test_a_lost_node_costs_no_call(client_flags, client_oracle, figures, tmp_path):
    """The first node, which stays, has a Serve replica and Ray's own services. Two nodes come and go."""
    argv = [f"--model={BUNDLE}", "--metrics-port=0", *client_flags]
    processes, joined = 0, []
    with (
        ray_serve(tmp_path, [*argv, "--serve-replicas=1"], cpus=1) as serving,
        ray_nodes(tmp_path, psutil.Process(serving.pid), cpus=1) as nodes,
    ):
        for _ in range(2):
            nodes.add()
        serving.deploy([*argv, "--serve-replicas=3"])
        assert len(nodes.replicas()) == 2
        async with ClientLoad(serving.address, client_oracle, CALLERS, timeout=DEADLINE) as load:
            for _ in range(FAULTS):
                await load.wait_for_answers(BETWEEN)
                processes += await asyncio.to_thread(nodes.kill)
                await load.wait_for_answers(BETWEEN)
                await asyncio.to_thread(nodes.add)
                joined.append(await within(RECOVERY, lambda: len(nodes.replicas()) == 2))
            await load.wait_for_answers(BETWEEN)
    figures.add(callers=CALLERS, faults={"nodes lost": FAULTS}, processes_killed=processes, **load.figures)
    load.assert_nothing_lost(BETWEEN)
    assert all(joined)
