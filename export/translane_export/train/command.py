"""`translane train`: a training run or an evaluation. PyTorch is imported once the settings are right."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from translane.command_error import CommandError, packages_load
from translane_export.train.settings import ENV_PREFIX, TrainSettings
from translane_server.core.errors import is_about_memory
from translane_server.settings.loader import load_settings

_PROGRAM = "translane train"


def train(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Train or evaluate; returns the exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted."""
    rank = environ.get("RANK", "0")  # as torchrun numbers several processes
    program = _PROGRAM if rank == "0" else f"{_PROGRAM} (process {rank[:10]})"
    try:
        settings = load_settings(TrainSettings, arguments, environ, prog=_PROGRAM, env_prefix=ENV_PREFIX)
        with packages_load():
            from translane_export.train.run import run
        run(settings, environ)
    except CommandError as error:
        return _fail(program, str(error), error.exit_code)
    except OSError as error:
        return _fail(program, f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except (RuntimeError, MemoryError) as error:
        if not is_about_memory(error):
            raise
        return _fail(program, "there is not enough memory; lower the sizes of the model, or --max-tokens", 1)
    except KeyboardInterrupt:
        if rank == "0":  # Ctrl-C interrupts all processes
            print(f"{program}: interrupted; --resume continues from the last validation", file=sys.stderr)
        return 130
    return 0


def _fail(program: str, message: str, code: int) -> int:
    print(f"{program}: {message}", file=sys.stderr)
    return code
