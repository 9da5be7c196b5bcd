"""What the exporter refuses or fails at."""

from __future__ import annotations

from translane.command_error import CommandError
from translane_server.core.terminal import printable


class ExportError(CommandError):
    """The checkpoint cannot be exported; the message is one sentence for whoever ran the command."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # it may quote a file
