"""What `translane-batch` does with its arguments."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from translane_batch.corpus import STANDARD_OUTPUT
from translane_batch.errors import BatchError
from translane_batch.run import run as run_batch
from translane_batch.settings import ENV_PREFIX, BatchSettings
from translane_batch.summary import Summary
from translane_client.errors import TranslaneError
from translane_server.errors import SettingsError, StartupError, is_about_memory
from translane_server.model_places import users_cache
from translane_server.printable import printable
from translane_server.settings_loader import load_settings
from translane_server.whole_files import written_whole

_PROGRAM = "translane-batch"
_AGAIN = "the same command goes on"


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Translate a corpus; return the exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted."""
    try:
        settings = load_settings(BatchSettings, arguments, environ, prog=_PROGRAM, env_prefix=ENV_PREFIX)
        settings = settings.model_copy(update={"model_cache": settings.model_cache or users_cache(environ)})
        _show(settings, run_batch(settings, _log))
    except (SettingsError, StartupError, BatchError) as error:
        return _fail(str(error), error.exit_code)
    except TranslaneError as error:
        return _fail(f"{error}; {_AGAIN}", 1)
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _fail(f"{sentence}; {_AGAIN}", 1)
    except (RuntimeError, MemoryError) as error:
        if not is_about_memory(error):
            raise
        return _fail(f"there is not enough memory; lower --rows or --replicas, and {_AGAIN}", 1)
    except KeyboardInterrupt:
        return _fail(f"interrupted; {_AGAIN}", 130)
    return 0


def _show(settings: BatchSettings, summary: Summary) -> None:
    content = json.dumps(asdict(summary), ensure_ascii=False) + "\n"
    if settings.summary == STANDARD_OUTPUT:
        print(content, end="", flush=True)
        return
    if settings.summary is not None:
        with written_whole(settings.summary) as file:
            file.write(content.encode())
    print(f"{printable(str(settings.output))}: {summary.sentence}")


def _log(line: str) -> None:
    """Say a line, if anybody listens: a run does not end with its terminal."""
    if sys.stderr:  # None if the descriptor was closed before the start
        with suppress(OSError, ValueError):
            print(f"{_PROGRAM}: {printable(line)}", file=sys.stderr, flush=True)


def _fail(message: str, code: int) -> int:
    _log(message)
    return code
