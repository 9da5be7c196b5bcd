"""How many Serve replicas a deployment needs: by rows, and not by calls."""

from __future__ import annotations

from typing import Any

# The figure that each engine reports to Serve: rows that decode, and sentences that wait for a row.
ROWS_WANTED = "rows_wanted"


def by_rows(context: Any) -> tuple[float, dict[str, Any]]:
    """Return how many Serve replicas the load needs. It is the `policy_function` of `autoscaling_config`.

    A call has from one sentence to hundreds, so the number of calls says little. So `target_ongoing_requests` is how
    many rows of an engine should be at work, together with the sentences that wait for one. Serve itself averages the
    figures over `look_back_period_s`, waits `upscale_delay_s` or `downscale_delay_s`, and keeps to `min_replicas` and
    `max_replicas`.

    Args:
        context: Serve's `AutoscalingContext`.

    Returns:
        The number of Serve replicas, which Serve rounds up, and what the policy remembers: nothing.
    """
    wanted = (context.aggregated_metrics or {}).get(ROWS_WANTED)
    if not wanted:  # no replica has told its load yet
        return context.target_num_replicas, {}
    return sum(wanted.values()) / context.config.get_target_ongoing_requests(), {}
