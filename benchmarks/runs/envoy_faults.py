"""What becomes of calls when servers behind Envoy are killed, hang, drain or join.

    python -m benchmarks.runs.envoy_faults
    python -m benchmarks.runs.envoy_faults --write    # into docs/envoy.md

`helpers.faults_behind_envoy` has the servers and their callers, and a test runs the same. Times depend on the machine
and on what else it does. The counts of lost calls do not.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.places import ROOT
from benchmarks.report.marked_part import write_part
from helpers.faults_behind_envoy import run
from helpers.load_on_envoy import Outcome

PAGE = ROOT / "docs" / "envoy.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into docs/envoy.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder))
    lines = table(result.outcomes)
    print(lines)
    print("parts of the calls before the first fault:", ", ".join(f"{share:.0%}" for share in result.shares))
    for outcome in result.outcomes:
        for why in outcome.lost:
            print(f"{outcome.event}: {why}")
    if arguments.write:
        write_part(PAGE, "faults behind Envoy", "python -m benchmarks.runs.envoy_faults --write", lines)


def table(outcomes: Sequence[Outcome]) -> str:
    head = "| event | calls | of them streams | repeated by Envoy | streams continued | slowest [s] | lost |"
    rows = [
        f"| {each.event} | {each.calls} | {each.streams} | {each.repeated} | {each.continued} | {each.slowest:.1f}"
        f" | {len(each.lost)} |"
        for each in outcomes
    ]
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|", *rows])


if __name__ == "__main__":
    main()
