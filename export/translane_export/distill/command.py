"""`translane distill`: PyTorch is imported once the settings are right."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from translane.command_error import CommandError, packages_load
from translane_export.distill.settings import ENV_PREFIX, DistillSettings
from translane_server.core.errors import is_about_memory
from translane_server.settings.loader import load_settings

_PROGRAM = "translane distill"
_INTERRUPTED = 130  # 128 + SIGINT


def distill(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Distill, and return the exit code."""
    settings = load_settings(DistillSettings, arguments, environ, prog=_PROGRAM, env_prefix=ENV_PREFIX)
    try:
        with packages_load():
            from translane_export.distill.run import run
        return run(settings)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error
    except (RuntimeError, MemoryError) as error:
        if not is_about_memory(error):
            raise
        raise CommandError("there is not enough memory; lower --max-batch-size or --max-length") from error
    except KeyboardInterrupt:
        print(f"{_PROGRAM}: interrupted; --resume goes on from the last translations", file=sys.stderr)
        return _INTERRUPTED
