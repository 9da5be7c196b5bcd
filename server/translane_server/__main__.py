"""Entry point of `translane-server`. Only this module reads the command line and the environment."""

from __future__ import annotations

import logging
import os
import sys
from importlib.util import find_spec
from typing import NoReturn

from translane_server.errors import is_about_memory
from translane_server.printable import printable

_MOST_CHARACTERS = 300  # of a sentence: some packages explain themselves at length
_HINT = "install translane[server], or translane[server-cuda] for GPUs"
_NEEDED_BY_REPLICAS = ("numpy", "onnxruntime")  # imported only in the replicas' processes
_INTERRUPTED = 130  # 128 + SIGINT


def main() -> int:
    """Serve until a signal comes, and return the exit code."""
    # gRPC reads this variable when it is imported. gRPC's own log lines would repeat what Translane reports itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from translane_server.command import run
        from translane_server.rpc.text_workers import any_thread_runs
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("translane"):
            raise
        return _not_installed(error.name)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (ImportError, OSError, MemoryError, RuntimeError) as error:  # what packages raise without memory
        _exit_at_once(_fail(f"a package does not load; is there enough memory? ({type(error).__name__}: {error})"))
    for name in _NEEDED_BY_REPLICAS:
        if find_spec(name) is None:
            return _not_installed(name)
    try:
        code = run(sys.argv[1:], os.environ)
    except KeyboardInterrupt:  # the server does not handle signals yet
        code = _INTERRUPTED
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_about_memory(error):
            raise
        code = _fail("there is not enough memory, or the limit of threads is reached")
    if any_thread_runs():
        _exit_at_once(code)
    return code


def _exit_at_once(code: int) -> NoReturn:
    """End the process, although a thread is within a library's call, which nothing can end.

    An ordinary exit takes the interpreter from under the thread. If the thread then returns from the call, the process
    may abort. A package that is loaded in part may have such threads of its own, as gRPC has.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _not_installed(name: str) -> int:
    return _fail(f"{name} is not installed; {_HINT}")


def _fail(message: str) -> int:
    print(f"translane-server: {printable(message, _MOST_CHARACTERS)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
