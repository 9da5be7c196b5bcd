"""What is lost when servers behind one client are killed, drain or hang, and Ray Serve's replicas and nodes.

    python -m benchmarks.runs.faults
    python -m benchmarks.runs.faults --long --write    # into docs/deployment.md

The faults and the load are those of tests/reliability, whose tests fail where a call is lost. Eight callers ask without
a pause, by all methods of the client, and compare each answer with that of an undisturbed server, to the bit. Some
engines of Ray Serve have six callers without retries instead. Without Ray, its tests are left out. `--long` strikes
some ten times as often, which takes half an hour.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from benchmarks.places import ROOT
from benchmarks.report.fault_tables import fault_table
from benchmarks.report.marked_part import write_part
from helpers.reliability import figures

PAGE = ROOT / "docs" / "deployment.md"
TESTS = [f"tests/reliability/test_{name}.py" for name in ("several_servers", "ray_serve", "ray_engines", "ray_nodes")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="strike more often")
    parser.add_argument("--write", action="store_true", help="write the table into docs/deployment.md")
    arguments = parser.parse_args()
    before = figures.PATH.stat().st_size if figures.PATH.exists() else 0
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *TESTS]
    environment = {**os.environ, **({"RELIABILITY": "long"} if arguments.long else {})}
    exit_code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    with figures.PATH.open(encoding="utf-8") as file:
        file.seek(before)
        lines = fault_table(file.read().splitlines())
    print(lines)
    if exit_code == 0 and arguments.write:
        write_part(PAGE, "figures of faults", "python -m benchmarks.runs.faults --write", lines)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
