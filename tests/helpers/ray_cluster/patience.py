"""Time for the processes of a node of Ray to start: Ray's own limits are too short for a busy machine."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from ray._private import services
from ray._private.parameter import RayParams

from helpers.ports import free_port

_PATIENCE = 60.0  # [seconds]
# Ports of a node's agents. A raylet that has to learn them from an agent ends if the agent takes 15 seconds to start.
_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


def be_patient() -> None:
    """Have Ray wait longer for nodes that this process starts, and for their workers."""
    os.environ.update(RAY_worker_register_timeout_seconds="300")  # 60 are few where ten processes share a CPU
    get_node, start, initialize = services.get_node, services.start_ray_process, RayParams.__init__

    def patient(*arguments: Any) -> Any:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def with_ports(self: Any, *arguments: Any, **settings: Any) -> None:
        initialize(self, *arguments, **settings)
        for name in _PORTS:
            setattr(self, name, free_port())

    def with_the_listening_port(command: list[str], *arguments: Any, **settings: Any) -> Any:
        """Start a process; tell a raylet the one port that Ray tells to the agent alone."""
        if found := re.search(r"--listen-port=(\d+)", " ".join(command)):
            command = [*command, f"--dashboard_agent_listen_port={found[1]}"]
        return start(command, *arguments, **settings)

    services.get_node = patient
    services.start_ray_process = with_the_listening_port
    RayParams.__init__ = with_ports
