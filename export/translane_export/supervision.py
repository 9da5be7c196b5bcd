"""Runs an export in a process of its own, and says in a sentence if that process does not end by itself.

PyTorch and ONNX Runtime are C++: a memory limit, or a mapped file that another program cuts off, may end their process
by a signal. The system ends the process that takes too much memory, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_FORWARDED = (signal.SIGTERM, signal.SIGHUP)
_STOPPED = {signal.SIGINT, *_FORWARDED}
_WAITED_FOR = {signal.SIGCHLD, *_STOPPED}  # SIGINT too, and it is not passed on: a terminal sends it to both
_PR_SET_PDEATHSIG = 1  # of prctl(2)


def supervise(program: str) -> int | None:
    """Go on in a new process; return None there, and its exit code here once it has ended.

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
    print(f"{program}: {sentence(-code)}", file=sys.stderr)
    return 128 - code if -code in _STOPPED else 1


def _wait(pid: int) -> int:
    """Pass on signals until the process `pid` has ended; return its exit code, negative for a signal.

    The signals stay blocked here and are waited for: a handler in Python may run only after `waitpid` has returned.
    """
    while True:
        number = signal.sigwait(_WAITED_FOR)
        if number in _FORWARDED:
            os.kill(pid, number)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def sentence(number: int) -> str:
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
