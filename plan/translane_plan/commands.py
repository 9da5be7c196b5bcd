"""What `translane-plan` does with its arguments."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from translane_plan.errors import PlanError
from translane_plan.lengths import read_lengths, scaled_to
from translane_plan.machines import fitting_front_ends, machine_of
from translane_plan.plan import make_plan
from translane_plan.profile import Length, Profile, read_profile, write_profile
from translane_plan.report import as_json, lines
from translane_plan.settings import MEASURE_PREFIX, SIZE_PREFIX, MeasureSettings, SizeSettings
from translane_plan.sizing import MOST_SENTENCES, Demand
from translane_server.errors import SettingsError, StartupError, is_about_memory
from translane_server.printable import printable
from translane_server.settings_loader import load_settings
from translane_server.standard_output import write_output

PROGRAM = "translane-plan"
_LONGEST_MEAN = 65536  # tokens


class _Terminated(BaseException):
    """SIGTERM arrived. As an exception it passes the code that ends the server."""


def measure(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Measure a profile; return the exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted, 143 ended."""
    program = f"{PROGRAM} measure"
    try:
        settings = load_settings(MeasureSettings, arguments, environ, prog=program, env_prefix=MEASURE_PREFIX)
        _check_writable(settings.output)
        # Here, because a plan needs neither numpy nor onnxruntime.
        from translane_plan.measuring.measure import measured_profile

        with _raising_on_sigterm():
            profile = measured_profile(settings, environ, lambda line: _log(program, line))
        write_profile(settings.output, profile)
    except (SettingsError, StartupError) as error:
        return _fail(program, str(error), error.exit_code)
    except PlanError as error:
        return _fail(program, str(error), 1)
    except (OSError, RuntimeError, MemoryError) as error:
        if not is_about_memory(error):
            raise
        return _fail(program, "there is not enough memory for the model and its rows", 1)
    except KeyboardInterrupt:
        return _fail(program, "interrupted; there is no profile", 130)
    except _Terminated:
        return _fail(program, "ended by SIGTERM; there is no profile", 128 + signal.SIGTERM)
    _log(program, f"{settings.output}: written")
    return 0


def size(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print a plan; return the exit code: 0 done, 1 no plan or a missed goal, 2 wrong settings, 130 interrupted."""
    program = f"{PROGRAM} size"
    try:
        settings = load_settings(SizeSettings, arguments, environ, prog=program, env_prefix=SIZE_PREFIX)
        _check_size(settings)
        profile = read_profile(settings.profile)
        lengths = _lengths(settings.lengths, profile)
        sentences = settings.texts_per_request
        machine = machine_of(
            profile,
            settings.cores,
            front_ends=settings.front_ends or _front_ends(settings, profile, lengths),
            replicas=settings.replicas,
            rows=settings.rows,
        )
        plan = make_plan(
            profile,
            machine,
            Demand(lengths, sentences, settings.requests, settings.seed),
            rate=settings.rate,
            p95=settings.p95,
            machines=settings.machines,
        )
    except SettingsError as error:
        return _fail(program, str(error), error.exit_code)
    except PlanError as error:
        return _fail(program, str(error), 1)
    except KeyboardInterrupt:
        return _fail(program, "interrupted", 130)
    try:
        write_output(json.dumps(as_json(plan), indent=1) if settings.format == "json" else "\n".join(lines(plan)))
    except OSError as error:
        return _fail(program, f"standard output cannot be written: {error.strerror}", 1)
    return 0 if plan.is_kept else 1


def _front_ends(settings: SizeSettings, profile: Profile, lengths: Sequence[Length]) -> int:
    fitting = fitting_front_ends(profile, settings.cores, lengths, settings.texts_per_request)
    return min(fitting, settings.replicas or fitting, settings.rows or fitting)


def _lengths(given: str, profile: Profile) -> Sequence[Length]:
    """The lengths of the setting; see `SizeSettings.lengths`."""
    if not given:
        return profile.lengths
    if not _is_number(given):
        return read_lengths(Path(given))
    mean = float(given)
    if not 1 <= mean <= _LONGEST_MEAN:
        raise SettingsError(f"--lengths: a mean of 1 to {_LONGEST_MEAN} tokens is needed, not {given}")
    return scaled_to(profile.lengths, mean)


@contextlib.contextmanager
def _raising_on_sigterm() -> Iterator[None]:
    def terminate(_number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal would interrupt the end of the server
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_writable(path: Path) -> None:
    """Refuse an output that cannot be written, before anything takes long.

    Raises:
        PlanError: it cannot be written.
    """
    if path.is_dir():
        raise PlanError(f"--output: {path}: it is a folder, not a file")
    if not path.absolute().parent.is_dir():
        raise PlanError(f"--output: {path}: there is no folder {path.absolute().parent}")


def _is_number(text: str) -> bool:
    """Whether a text is a number as programs write it; Python itself takes 1_0 and other writings' digits."""
    if not text.isascii() or "_" in text:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_size(settings: SizeSettings) -> None:
    """Refuse a simulation that would hardly end.

    Raises:
        SettingsError: it has too many sentences.
    """
    sentences = settings.requests * settings.texts_per_request
    if sentences > MOST_SENTENCES:
        raise SettingsError(
            f"--requests {settings.requests} of --texts-per-request {settings.texts_per_request} are {sentences:,}"
            f" sentences, and at most {MOST_SENTENCES:,} are simulated"
        )


def _log(program: str, line: str) -> None:
    print(f"{program}: {printable(line)}", file=sys.stderr, flush=True)


def _fail(program: str, message: str, code: int) -> int:
    print(f"{program}: {printable(message)}", file=sys.stderr)
    return code
