"""The `translane` command in this process, and through the shell."""

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest import mock

from translane.__main__ import main


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Command:
    """Runs `main` against a server and keeps what it wrote."""

    def __init__(self, address: str) -> None:
        self.environ = {"TRANSLANE_CLIENT_SERVER": address}
        self.stderr = io.StringIO()
        self.stdout = io.BytesIO()

    def __call__(self, *argv: str, stdin: bytes | io.BytesIO = b"") -> int:
        stdin = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        with Path(os.devnull).open("wb") as nothing:
            read, written = (
                SimpleNamespace(buffer=stream, flush=lambda: None, fileno=nothing.fileno)
                for stream in (stdin, self.stdout)
            )
            with mock.patch.multiple(sys, stdin=read, stdout=written, stderr=self.stderr):
                return main(argv, self.environ)

    @property
    def out(self) -> str:
        return self.stdout.getvalue().decode()

    @property
    def err(self) -> str:
        return self.stderr.getvalue()


def shell(address: str, *argv: str, stdout: int | IO[bytes] = subprocess.PIPE) -> Any:
    """A `subprocess.Popen` whose pipes are open, which its type does not tell."""
    return subprocess.Popen(
        [sys.executable, "-m", "translane", *argv],
        env={**os.environ, "TRANSLANE_CLIENT_SERVER": address, "LC_ALL": "C", "PYTHONUTF8": "0"},
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
