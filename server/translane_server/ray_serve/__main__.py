"""Entry point of `translane-ray`. Only this module reads the command line and the environment."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Write the configuration of Ray Serve, and return the exit code."""
    try:
        from translane_server.ray_serve.command import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("translane"):
            raise
        print(f"translane-ray: {error.name} is not installed; install translane[server,ray]", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT
    return run(sys.argv[1:], os.environ)


if __name__ == "__main__":
    sys.exit(main())
