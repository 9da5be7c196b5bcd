"""The standard streams of a command."""

from __future__ import annotations

from typing import BinaryIO, TextIO

from translane_client.cli.text_files import FileError


class StandardStreams:
    """The standard streams: bytes for texts, which are UTF-8 whatever the locale, and text for messages to people."""

    def __init__(self, stdin: BinaryIO | None, stdout: BinaryIO | None, stderr: TextIO) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self.stderr = stderr

    @property
    def stdin(self) -> BinaryIO:
        """Standard input. FileError: the command was started without one."""
        return _opened(self._stdin, "input")

    @property
    def stdout(self) -> BinaryIO:
        """Standard output. FileError: the command was started without one."""
        return _opened(self._stdout, "output")


def _opened(stream: BinaryIO | None, name: str) -> BinaryIO:
    if stream is None:
        raise FileError(f"standard {name} is closed")
    return stream
