"""How many Serve replicas a deployment needs: by rows, and not by calls."""

from __future__ import annotations

from typing import Any

from translane_server.observation.metrics import Metrics

# The figure that each engine reports to Serve.
LOAD = "load"


def load_of(metrics: Metrics) -> float:
    """Return the load of an engine: rows that decode and sentences that wait for one, as a share of the rows.

    It is the load of the busiest model, because each model has rows of its own: free rows of the others take none of
    its sentences. A model that is not loaded has no rows and no load.
    """
    decoders = [each.decoder for each in list(metrics.models.values()) if each.decoder]
    return max(((each.active_rows + each.waiting) / each.rows for each in decoders if each.rows), default=0.0)


def by_rows(context: Any) -> tuple[float, dict[str, Any]]:
    """Return how many Serve replicas the load needs. It is the `policy_function` of `autoscaling_config`.

    A call has from one sentence to hundreds, so the number of calls says little. So `target_ongoing_requests` is the
    load that an engine should have: see `load_of`. Serve itself averages the figures over `look_back_period_s`, waits
    `upscale_delay_s` or `downscale_delay_s`, and keeps to `min_replicas` and `max_replicas`. It rounds the number up.
    What the policy remembers is nothing.
    """
    loads = (context.aggregated_metrics or {}).get(LOAD)
    if not loads:  # no replica has told its load yet
        return context.target_num_replicas, {}
    return sum(loads.values()) / context.config.get_target_ongoing_requests(), {}
