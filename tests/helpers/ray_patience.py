"""Time for the processes of a node of Ray to start: Ray gives them 30 seconds, too few for a busy machine."""

from __future__ import annotations

import time
from typing import Any

from ray._private import services

_PATIENCE = 150.0  # [seconds]


def be_patient() -> None:
    """Have Ray wait longer for nodes that this process starts."""
    get_node = services.get_node

    def patient(*arguments: Any) -> Any:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    services.get_node = patient
