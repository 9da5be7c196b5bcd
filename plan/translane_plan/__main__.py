"""`translane-plan`: the only reader of argv and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_USAGE = """\
usage: translane-plan measure --output FILE [options] BUNDLE
       translane-plan size [options] PROFILE

measure   what sentences of a model cost on this machine
size      how many machines a load needs; what rate they keep; or what latency they have

translane-plan COMMAND --help tells more.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure or plan; return the exit code: see `translane_plan.commands`."""
    # gRPC reads this variable when it is imported. Its own log lines would stand among the command's.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    argv = sys.argv[1:] if argv is None else argv
    command = argv[0] if argv else ""
    try:
        from translane_plan import commands

        if command == "measure":
            return commands.measure(argv[1:], os.environ)
        if command == "size":
            return commands.size(argv[1:], os.environ)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("translane"):
            raise
        print(
            f"translane-plan: {error.name.partition('.')[0]} is not installed; install translane[server]",
            file=sys.stderr,
        )
        return 1
    if command in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if command in ("-V", "--version"):
        from importlib.metadata import version

        print(f"translane-plan {version('translane')}")
        return 0
    wrong = f"unknown command {command!r}" if command else "a command is needed"
    print(f"translane-plan: {wrong}: measure or size; --help tells more", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
