"""`translane batch`: translates a corpus."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from translane.command_error import packages_load
from translane.errors import TranslaneError
from translane_batch.settings import ENV_PREFIX, STANDARD_OUTPUT, BatchError, BatchSettings
from translane_client.cli.waiting import waiting_told
from translane_server.core.errors import is_about_memory
from translane_server.core.terminal import printable
from translane_server.settings.loader import load_settings

if TYPE_CHECKING:
    from translane_batch.run import Summary

_PROGRAM = "translane batch"
_AGAIN = "the same command goes on"
_INTERRUPTED = 130  # 128 + SIGINT


def batch(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Translate a corpus; return the exit code: 0 done, 1 failed, 130 interrupted."""
    settings = load_settings(BatchSettings, arguments, environ, prog=_PROGRAM, env_prefix=ENV_PREFIX)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends figures to its makers otherwise
    # SIGTERM interrupts a run as Ctrl-C does, so that replicas end and sockets are removed.
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with packages_load():
            from translane_batch.run import run
        with waiting_told(_log):
            _show(settings, run(settings, _log))
    except TranslaneError as error:
        raise BatchError(f"{error}; {_AGAIN}") from error
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        raise BatchError(f"{sentence}; {_AGAIN}") from error
    except sqlite3.OperationalError as error:  # such as a full disk
        raise BatchError(f"{settings.work_folder}: {error}; {_AGAIN}") from error
    except sqlite3.Error as error:
        problem = f"the state of the run is damaged ({error}); another --output or --work starts anew"
        raise BatchError(f"{settings.work_folder}: {problem}") from error
    except (RuntimeError, MemoryError) as error:
        if not is_about_memory(error):
            raise
        raise BatchError(f"there is not enough memory; lower --max-batch-size or --replicas, and {_AGAIN}") from error
    except KeyboardInterrupt:
        _log(f"interrupted; {_AGAIN}")
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _show(settings: BatchSettings, summary: Summary) -> None:
    from translane_client.cli.inputs import FileError  # late: help does without them
    from translane_client.cli.outputs import write_whole

    content = json.dumps(asdict(summary), ensure_ascii=False) + "\n"
    if settings.summary == STANDARD_OUTPUT:
        print(content, end="", flush=True)
        return
    if settings.summary is not None:
        try:
            write_whole(settings.summary, content.encode())
        except FileError as error:
            raise BatchError(f"{error}; {_AGAIN}") from error
    print(f"{printable(str(settings.output))}: {summary.sentence}")


def _log(line: str) -> None:
    """Say a line, if anybody listens: a run does not end with its terminal."""
    if sys.stderr:  # None if the descriptor was closed before the start
        with suppress(OSError, ValueError):
            print(f"{_PROGRAM}: {printable(line)}", file=sys.stderr, flush=True)
