"""A cluster of Ray whose nodes are lost under load, each with its Serve replica and its proxy. No call is lost."""

import asyncio
import contextlib

import pytest

from helpers.ray_cluster.nodes import RayNodes
from helpers.ray_cluster.processes import proxies
from helpers.reliability.form import form
from helpers.reliability.load import ClientLoad
from helpers.reliability.waiting import within
from helpers.server_process import BUNDLE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(form(580, 1800))]

MORE_NODES = form(1, 2)  # beside the first one
CALLERS = 8
FAULTS = form(1, 10)
BETWEEN = 40  # answers between two faults
DEADLINE = 120.0  # of a call [seconds]
RECOVERY = 90.0  # until a node that has joined has a Serve replica [seconds]


def one_on_each_node(deployment):
    deployment["max_replicas_per_node"] = 1


@pytest.fixture(scope="module")
def cluster(client_flags, client_oracle, ray_cluster, tmp_path_factory):
    """Ray on nodes, each with a Serve replica and a proxy. The first one, which stays, has Ray's own services."""
    argv = [f"{BUNDLE}", "--metrics-port=0", *client_flags, f"--serve-replicas={1 + MORE_NODES}"]
    with contextlib.closing(RayNodes(tmp_path_factory.mktemp("nodes"), ray_cluster.pid, cpus=1)) as nodes:
        for _ in range(MORE_NODES):
            nodes.add()
        ray_cluster.deploy(argv, one_on_each_node)
        ray_cluster.settled(1)
        assert len(nodes.replicas()) == MORE_NODES
        yield ray_cluster, nodes


async def test_a_lost_node_costs_no_call(cluster, client_oracle, figures):
    serving, nodes = cluster
    processes, joined = 0, []
    async with ClientLoad(serving.address, client_oracle, CALLERS, timeout=DEADLINE) as load:
        for _ in range(FAULTS):
            await load.wait_for_answers(BETWEEN)
            processes += await asyncio.to_thread(nodes.kill)
            await load.wait_for_answers(BETWEEN)
            await load.lightly(asyncio.to_thread(nodes.add))
            joined.append(await load.lightly(within(RECOVERY, lambda: len(nodes.replicas()) == MORE_NODES)))
        await load.wait_for_answers(BETWEEN)
    figures.add(callers=CALLERS, faults={"nodes lost": FAULTS}, processes_killed=processes, **load.figures)
    load.assert_nothing_lost(BETWEEN)
    assert all(joined)


async def test_a_killed_proxy_costs_no_call(cluster, client_oracle, figures):
    """The proxies of all nodes listen on one port here. Its connections go to those that are left."""
    serving, nodes = cluster
    assert await within(RECOVERY, lambda: len(nodes.proxies(serving.port)) == MORE_NODES)
    killed = set()
    async with ClientLoad(serving.address, client_oracle, CALLERS, timeout=DEADLINE) as load:
        for _ in range(FAULTS):
            await load.wait_for_answers(BETWEEN)
            (proxy,) = proxies(serving.pid)
            proxy.kill()
            killed.add(proxy.pid)
            back = within(RECOVERY, lambda: {each.pid for each in proxies(serving.pid)} - killed)
            assert await load.lightly(back)
        await load.wait_for_answers(BETWEEN)
    figures.add(callers=CALLERS, faults={"killed": len(killed)}, **load.figures)
    load.assert_nothing_lost(BETWEEN)
