"""`translane export`, `translane explain` and `translane shortlist`, each in a process of its own.

PyTorch is imported only once the settings are right, so that a mistake and the help need no seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from translane.command_error import CommandError, packages_load
from translane_export.core.errors import ExportError
from translane_export.core.settings import (
    ENV_PREFIX,
    EXPLAIN_PREFIX,
    SHORTLIST_PREFIX,
    ExplainSettings,
    ExportSettings,
    ShortlistSettings,
)
from translane_export.model_card import VERIFIED_AS
from translane_server.bundle.manifest import Manifest
from translane_server.core.errors import BundleError, first_line, is_about_memory
from translane_server.core.terminal import printable
from translane_server.models.cache import Hold, ModelCache, model_cache
from translane_server.models.firefox import look_up
from translane_server.settings.loader import load_settings
from translane_server.settings.model_sources import is_firefox
from translane_server.text.language_tags import UNDETERMINED

_FORWARDED = (signal.SIGTERM, signal.SIGHUP)
_STOPPED = {signal.SIGINT, *_FORWARDED}
_WAITED_FOR = {signal.SIGCHLD, *_STOPPED}
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_DONE = {"export": "exported", "explain": "explained", "shortlist": "aligned"}  # what cannot be done, in a message


class _Terminated(BaseException):
    """SIGTERM arrived. As an exception it passes the code that removes half-written files."""


def run(name: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command `name`; return 0 done, 1 failed, 2 wrong settings, 130 interrupted, 143 terminated."""
    signal.signal(signal.SIGTERM, _end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # who ignores it goes on
        signal.signal(signal.SIGINT, _end)
    try:
        report = _COMMANDS[name](arguments, environ)
    except (CommandError, ModuleNotFoundError):
        raise
    except KeyboardInterrupt:
        return _fail(name, "interrupted; nothing is written", 128 + signal.SIGINT)
    except _Terminated:
        signal.alarm(0)
        return _fail(name, "ended by SIGTERM; nothing is written", 128 + signal.SIGTERM)
    except Exception as error:  # noqa: BLE001 (a library's, about what nobody foresees in a file)
        return _fail(name, _sentence(error, _DONE[name]), ExportError.exit_code)
    _print(report)
    return 0


def _run_apart(name: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command `name` in a process of its own, and return its exit code."""
    code = supervise(f"translane {name}")
    return run(name, arguments, environ) if code is None else code


export, explain, shortlist = (partial(_run_apart, name) for name in _DONE)


def _export(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    settings = load_settings(ExportSettings, arguments, environ, prog="translane export", env_prefix=ENV_PREFIX)
    settings, _hold = _with_firefox(settings)  # held until this function ends
    with packages_load():
        import torch

        from translane_export.bundle_writer import export_precisions

    torch.set_num_threads(settings.computing_threads)
    manifests = export_precisions(settings, log=partial(_progress, "export"))
    if UNDETERMINED in (*manifests[0].source_languages, *manifests[0].target_languages):
        _progress(
            "export",
            "warning: the checkpoint does not say which languages it translates, so requests cannot choose the model by"
            " theirs; --source-language and --target-language say it, such as --source-language de",
        )
    return _report(settings, manifests)


def _with_firefox(settings: ExportSettings) -> tuple[ExportSettings, Hold | None]:
    """The settings with the folder of a model of Firefox in the place of its name, and what keeps it in the cache."""
    if not is_firefox(settings.checkpoint):
        return settings, None
    try:
        cache = ModelCache(model_cache(), most_bytes=0)  # a server removes what is too much
        model = look_up(str(settings.checkpoint), settings.firefox_models, cache.firefox)
        hold = cache.keep(model.folder(cache.firefox))
        languages = {"source_language": model.source, "target_language": model.target}
        found = {name: tag for name, tag in languages.items() if name not in settings.model_fields_set}
        return settings.model_copy(update={"checkpoint": model.fetched(cache.firefox), **found}), hold
    except BundleError as error:
        raise ExportError(str(error)) from None


def _explain(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    settings = load_settings(ExplainSettings, arguments, environ, prog="translane explain", env_prefix=EXPLAIN_PREFIX)
    with packages_load():
        from translane_export.explain.explain import explain
    return explain(settings, log=partial(_progress, "explain"))


def _shortlist(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    prog = "translane shortlist"
    settings = load_settings(ShortlistSettings, arguments, environ, prog=prog, env_prefix=SHORTLIST_PREFIX)
    with packages_load():
        from translane_export.shortlists import build_shortlist

    return build_shortlist(settings, log=partial(_progress, "shortlist"))


_COMMANDS: Mapping[str, Callable[[Sequence[str], Mapping[str, str]], str]] = {
    "export": _export,
    "explain": _explain,
    "shortlist": _shortlist,
}


def _sentence(error: Exception, what: str) -> str:
    """What to say about an error that nobody has a better sentence about, with its place for whoever reports it."""
    if is_about_memory(error):
        return "there is not enough memory for this model"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return f"the model cannot be {what}: {type(error).__name__} in {where}: {first_line(error)}"


def _end(number: int, _frame: FrameType | None) -> None:
    """End what runs, unless that removes files already.

    Python drops an exception within a destructor or a callback of a library, so an end by SIGTERM is asked for again a
    second later; a person presses Ctrl-C again.
    """
    handled = sys.exception()
    while handled is not None:
        if isinstance(handled, _Terminated | KeyboardInterrupt):
            return
        handled = handled.__context__
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(1)
    raise _Terminated


def _report(settings: ExportSettings, manifests: Sequence[Manifest]) -> str:
    if len(manifests) == 1:
        return _report_bundle(settings.output, manifests[0])
    megabytes = sum(map(_megabytes, manifests))
    parts = [_report_bundle(settings.output / manifest.precision, manifest) for manifest in manifests]
    return "\n".join([*parts, f"{settings.output}: {len(manifests)} bundles, {megabytes:.1f} MB"])


def _report_bundle(folder: Path, manifest: Manifest) -> str:
    parity = manifest.parity
    assert parity
    lines = [
        f"{printable(str(folder))}: {manifest.name} {manifest.version}, {manifest.precision},"
        f" {_megabytes(manifest):.1f} MB",
        f"parity: {parity.sentences} sentences, {parity.tokens:,} tokens, {parity.token_mismatches} differ;"
        f" largest logit difference {parity.max_logit_difference:.1e} (tolerance {parity.tolerance:.0e})"
        f"{VERIFIED_AS.get(manifest.precision, '')}",
    ]
    if activation := parity.max_activation:
        lines.append(f"largest activation: {activation.value:,.4g}, the {activation.tensor}")
    return "\n".join(lines)


def _megabytes(manifest: Manifest) -> float:
    return sum(entry.size for entry in manifest.files.values()) / 1e6


def _print(report: str) -> None:
    """Print a report. Letters that the terminal lacks are escaped, and whoever reads may stop before the end."""
    encoding = sys.stdout.encoding or "utf-8"
    with contextlib.suppress(BrokenPipeError):
        print(report.encode(encoding, "backslashreplace").decode(encoding), flush=True)
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again as it ends


def _progress(name: str, line: str) -> None:
    print(f"translane {name}: {printable(line)}", file=sys.stderr, flush=True)


def _fail(name: str, message: str, code: int) -> int:
    _progress(name, message)
    return code


def supervise(program: str) -> int | None:
    """Go on in a new process; return None there, and its exit code here once it has ended.

    PyTorch and ONNX Runtime are C++: a memory limit, or a mapped file that another program cuts off, may end their
    process by a signal. The system ends the process that takes too much memory, too.

    Signals that ask for an end go to the new process, which removes what it has begun to write. Call this before
    anything starts a thread.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, an exit code is lost
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    pid = os.fork()
    if pid == 0:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        _silence_libraries()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)
        return None
    code = _wait(pid)
    if code >= 0:
        return code
    print(f"{program}: {_ended_by(-code)}", file=sys.stderr)
    return 128 - code if -code in _STOPPED else 1


def _wait(pid: int) -> int:
    """Pass on signals until the process `pid` has ended; return its exit code, negative for a signal.

    The signals stay blocked here and are waited for: a handler in Python may run only after `waitpid` has returned.
    """
    while True:
        number, is_sent = _next_signal()
        if number in _FORWARDED or (number == signal.SIGINT and is_sent):
            os.kill(pid, number)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def _next_signal() -> tuple[int, bool]:
    """Wait for a signal; return it, and whether another process has sent it to this one.

    A terminal sends SIGINT to both processes, so it is not passed on. Only Linux tells who has sent a signal.
    """
    if sys.platform != "linux":
        return signal.sigwait(_WAITED_FOR), False
    info = signal.sigwaitinfo(_WAITED_FOR)
    return info.si_signo, info.si_code <= 0


def _ended_by(number: int) -> str:
    """What to say about a process that the signal `number` has ended."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in _STOPPED:
        return f"ended by {name}"
    return f"ended by {name}: there is too little memory, or a file is damaged or was changed meanwhile"


def _silence_libraries() -> None:
    """Keep standard error for Python: what C++ writes there as it fails is no sentence."""
    own = os.dup(sys.stderr.fileno())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)
    sys.stderr = os.fdopen(own, "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1)
