"""The process of a front end. The last argument is the file descriptor of its socket to the parent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from translane_server.errors import StartupError
    from translane_server.front_ends.parent_connection import ParentConnection


def main() -> NoReturn:
    """Serve until the parent says otherwise, and end the process."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the parent tells what to do
        signal.signal(each, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored signal is inherited, and would hide how replicas end
    code = run(int(sys.argv[-1]), os.environ)
    # An ordinary exit would wait for threads, and one may be within a library's call, which nothing can end.
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)


def run(descriptor: int, environ: Mapping[str, str]) -> int:
    """Serve as the parent at the other end of the socket `descriptor` asks; return the exit code."""
    with socket.socket(fileno=descriptor) as connection:
        return asyncio.run(_serve(connection, environ))


async def _serve(connection: socket.socket, environ: Mapping[str, str]) -> int:
    from translane_server.errors import StartupError, is_about_memory
    from translane_server.front_ends.front_end import FrontEnd
    from translane_server.front_ends.parent_connection import ParentConnection
    from translane_server.observation.log_writer import written_in_background
    from translane_server.observation.logs import configure_logging
    from translane_server.observation.trace_setup import traces

    parent = ParentConnection(connection)
    await parent.open()
    setup = await parent.receive()
    if setup is None:
        return 0
    settings = setup.settings
    configure_logging(settings.log_format, settings.log_level, always={"front_end": setup.number})
    with written_in_background(), traces(environ) as tracer:
        try:
            return await FrontEnd(setup, parent, tracer).run()
        except StartupError as error:
            return await _refused(parent, error)
        except (MemoryError, OSError, RuntimeError) as error:
            if not is_about_memory(error):
                raise
            return await _refused(
                parent, StartupError("there is not enough memory, or the limit of threads is reached")
            )


async def _refused(parent: ParentConnection, error: StartupError) -> int:
    parent.send(error)
    await parent.sent()
    return error.exit_code


if __name__ == "__main__":
    main()
