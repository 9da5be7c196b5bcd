"""A node of a cluster on this machine: a raylet, and what the raylet starts; a program for `helpers.ray_cluster.nodes`.

Its arguments are the address of the cluster and a number of CPUs. It writes `running`, and ends when standard input
ends.
"""

from __future__ import annotations

import sys

from ray._private.node import Node
from ray._private.parameter import RayParams

from helpers.ray_cluster.patience import be_patient
from helpers.ray_cluster.programs import OBJECT_STORE


def main(address: str, cpus: str) -> None:
    be_patient()
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
    main(*sys.argv[1:])
