"""`translane-export`: the only reader of argv and environment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import torch

from translane_export.bundle_writer import export_checkpoint
from translane_export.errors import ExportError
from translane_export.settings import ENV_PREFIX, ExportSettings
from translane_server.bundle import Manifest
from translane_server.errors import SettingsError
from translane_server.settings import load_settings

_PROGRAM = "translane-export"


def main(argv: Sequence[str] | None = None) -> int:
    """Export; returns the exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted."""
    signal.signal(signal.SIGTERM, _terminate)
    arguments = ["--output" if argument == "-o" else argument for argument in (sys.argv[1:] if argv is None else argv)]
    try:
        settings = load_settings(ExportSettings, arguments, os.environ, prog=_PROGRAM, env_prefix=ENV_PREFIX)
        torch.set_num_threads(settings.computing_threads)
        manifest = export_checkpoint(settings, log=_progress)
    except SettingsError as error:
        return _fail(str(error), error.exit_code)
    except ExportError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:  # of a file that nobody has a better sentence about
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), ExportError.exit_code)
    except MemoryError:
        return _fail("there is not enough memory for this model", ExportError.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing is written", 130)
    print(_report(settings, manifest))
    return 0


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Leave by an exception, so that what is half-written is removed."""
    sys.exit(128 + number)


def _report(settings: ExportSettings, manifest: Manifest) -> str:
    parity = manifest.parity
    assert parity
    megabytes = sum(entry.size for entry in manifest.files.values()) / 1e6
    return (
        f"{settings.output}: {manifest.name} {manifest.version}, {manifest.precision}, {megabytes:.1f} MB\n"
        f"parity: {parity.sentences} sentences, {parity.tokens:,} tokens, {parity.token_mismatches} differ;"
        f" largest logit difference {parity.max_logit_difference:.1e} (tolerance {parity.tolerance:.0e})"
    )


def _progress(line: str) -> None:
    print(f"{_PROGRAM}: {line}", file=sys.stderr, flush=True)


def _fail(message: str, code: int) -> int:
    print(f"{_PROGRAM}: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
