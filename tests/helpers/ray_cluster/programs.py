"""Runs Ray on this machine: programs that `processes.started` starts, each of which ends when standard input ends.

`driver FOLDER CPUS` is a cluster. It deploys each configuration whose path comes on standard input, and writes a line:
a mark, then `running`, or why the application does not run.

`node ADDRESS CPUS` is a raylet that joins the cluster at an address, and what the raylet starts. It writes `running`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray.serve._private import api
from ray.serve.config import ProxyLocation, gRPCOptions
from ray.serve.schema import ServeDeploySchema

from helpers.ray_cluster.patience import be_patient
from helpers.ray_cluster.processes import MARK

OBJECT_STORE = 80 * 1024 * 1024  # of a node; the least that Ray takes is little below [bytes]
_DEPLOYING_TIME = 200.0  # [seconds]


def driver(folder: str, cpus: str) -> None:
    _start(folder, int(cpus))
    try:
        for line in sys.stdin:
            config = json.loads(Path(line.strip()).read_text(encoding="utf-8"))
            try:
                told = _deployed(config)
            except Exception as error:  # noqa: BLE001  the next application may be deployed all the same
                told = f"failed: {str(error)[-1000:]!r}"
            print(f"\n{MARK}{told}", flush=True)
    finally:
        serve.shutdown()
        ray.shutdown()


def _start(folder: str, cpus: int) -> None:
    """Start Ray. On a busy machine its processes need longer than Ray waits for them, so this may take attempts."""
    for last in (False, False, True):
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE,
                _temp_dir=folder,
                _node_ip_address="127.0.0.1",
                namespace="serve",
            )
        except Exception:  # Ray raises nothing more precise
            if last:
                raise
            ray.shutdown()
        else:
            return


def _deployed(config: dict[str, Any]) -> str:
    schema = ServeDeploySchema.model_validate(config)
    client = api.serve_start(
        http_options=schema.http_options.model_dump(),
        proxy_location=ProxyLocation.EveryNode,
        grpc_options=gRPCOptions(**schema.grpc_options.model_dump()),
    )
    client.deploy_apps(schema)
    end = time.monotonic() + _DEPLOYING_TIME
    while time.monotonic() < end:
        time.sleep(0.2)
        told = [serve.status().applications[each.name] for each in schema.applications]
        if failed := [each for each in told if each.status == "DEPLOY_FAILED"]:
            return f"failed: {failed[0].message!r}"
        healthy = all(one.status == "HEALTHY" for each in told for one in each.deployments.values())
        if healthy and all(each.status == "RUNNING" for each in told):
            return "running"
    return "it takes too long"


def node(address: str, cpus: str) -> None:
    parameters = RayParams(
        gcs_address=address,
        node_ip_address="127.0.0.1",
        num_cpus=int(cpus),
        num_gpus=0,
        object_store_memory=OBJECT_STORE,
        include_log_monitor=False,
        # Ports that other nodes of this machine have not taken.
        node_manager_port=0,
        min_worker_port=0,
        max_worker_port=0,
    )
    Node(parameters, head=False, shutdown_at_exit=True, spawn_reaper=True)
    print("running", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    be_patient()
    {"driver": driver, "node": node}[sys.argv[1]](*sys.argv[2:])
