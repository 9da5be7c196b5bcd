"""`translane serve`: reads the settings, then loads the server, and ends the process although a thread may hang."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from translane.command_error import end_at_once, packages_load, uncollected
from translane_server.workers import launch

PROGRAM = "translane serve"
_NEEDED_LATER = ("numpy", "onnxruntime", "grpc", "starlette")  # imported when models load already
_INTERRUPTED = 130  # 128 + SIGINT


def serve(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code; with `--check`, once everything is looked at.

    Raises:
        StartupError: the server cannot start.
        CommandError, ModuleNotFoundError: a package does not load, or is missing.
    """
    # Until the server handles it: all models are new then. Without a handler, the signal would end the process.
    signal.signal(signal.SIGHUP, lambda *_: None)
    # Until everything is imported. The process starts before the imports, which take as long as its own.
    with uncollected(), launch.process_ahead():
        code = _run(argv, environ)
    from translane_server.translation.tokenizer_pool import any_thread_runs

    if any_thread_runs():
        end_at_once(code)
    return code


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    with packages_load():
        from translane_server.core.errors import StartupError, is_about_memory
        from translane_server.settings.loader import load_settings
        from translane_server.settings.server_settings import ENV_PREFIX, ServerSettings
    settings = load_settings(ServerSettings, argv, environ, prog=PROGRAM, env_prefix=ENV_PREFIX)
    with packages_load():
        from translane_server.app.lifetime import run
    for name in _NEEDED_LATER:
        if find_spec(name) is None:
            raise ModuleNotFoundError(name=name)
    try:
        return run(settings, environ)
    except KeyboardInterrupt:  # the server does not handle signals yet
        return _INTERRUPTED
    except StartupError as error:
        return _fail(str(error), error.exit_code)
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_about_memory(error):
            raise
        return _fail("there is not enough memory, or the limit of threads is reached", 1)


def _fail(sentence: str, code: int) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    return code
