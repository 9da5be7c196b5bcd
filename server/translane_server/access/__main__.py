"""Entry point of `translane-keys`. Only this module reads the command line and the environment."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Change or show the file of keys, and return the exit code."""
    try:
        from translane_server.access.key_command import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("translane"):
            raise
        print(f"translane-keys: {error.name} is not installed; install translane[server]", file=sys.stderr)
        return 1
    return run(sys.argv[1:], os.environ)


if __name__ == "__main__":
    sys.exit(main())
