"""The table of faults: what the tests of reliability counted while servers, Serve replicas and nodes were lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# A test, and what happens in it.
_FAULTS = {
    "test_a_killed_server_costs_no_call": "one of two servers is killed, and comes back",
    "test_servers_that_are_killed_in_turn_without_a_break_cost_no_call": "two servers are killed in turn",
    "test_all_servers_away_for_a_moment_cost_no_call": "both servers are killed at once, and come back",
    "test_a_server_that_drains_costs_no_call": "one of two servers drains, and comes back",
    "test_a_server_that_hangs_costs_no_call": "one of two servers hangs",
    "test_a_stream_goes_on_when_all_servers_were_killed": "both servers are killed in the middle of a stream",
    "test_retries_of_grpc_itself_lose_no_call": "servers drain and are killed; gRPC itself tries again",
    "test_a_killed_replica_of_serve_costs_no_call": "Ray Serve: one of two Serve replicas is killed",
    "test_all_replicas_of_serve_killed_at_once_cost_no_call": "Ray Serve: both Serve replicas are killed at once",
    "test_a_killed_process_of_an_engine_costs_no_call": "Ray Serve: the processes that decode for one are killed",
    "test_a_stream_goes_on_when_all_replicas_of_serve_were_killed": "Ray Serve: both are killed in a stream",
    "test_scaling_down_and_up_costs_no_call": "Ray Serve: from two Serve replicas to one, and back",
    "test_a_killed_engine_loses_no_call": "Ray Serve, without retries: one of one or two Serve replicas is killed",
    "test_new_settings_roll_out_without_a_failed_call": "Ray Serve, without retries: new settings roll out",
    "test_a_lost_node_costs_no_call": "Ray Serve: a node is lost with all processes, and another one joins",
    "test_a_killed_proxy_costs_no_call": "Ray Serve: the proxy of one of three nodes is killed",
}


# The columns behind what happens, and the figures that they show.
_COLUMNS = {
    "calls": "calls",
    "faults": "faults",
    "tried again by the client": "tried again by the client",
    "lost": "lost",
    "answered twice": "doubled",
}


def fault_table(lines: Iterable[str]) -> str:
    """Return the table, of the tests that `lines` tell of.

    Args:
        lines: as `Figures` writes them into build/reliability.txt; a test may have several lines.
    """
    rows: dict[str, Counter[str]] = {}
    for line in lines:
        test, _, figures = line.partition(": ")
        name = test.partition("[")[0]
        if name not in _FAULTS:
            continue
        values = dict(each.partition(": ")[::2] for each in figures.split(", "))
        row = rows.setdefault(name, Counter())
        for figure in values.keys() & set(_COLUMNS.values()):
            row[figure] += _sum(values[figure])
    body = []
    for name, what in _FAULTS.items():
        if name in rows:
            cells = [f"{rows[name][figure]:,}" if figure in rows[name] else "–" for figure in _COLUMNS.values()]
            body.append(f"| {what} | {' | '.join(cells)} |")
    head = f"| what happens | {' | '.join(_COLUMNS)} |"
    return "\n".join([head, "|---|" + "---:|" * len(_COLUMNS), *body])


def _sum(value: str) -> int:
    """The sum of the whole numbers of a figure, such as `2 killed 1 drained`."""
    return sum(map(int, re.findall(r"\b\d+\b", value)))
