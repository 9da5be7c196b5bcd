"""What the exporter refuses or fails at."""

from __future__ import annotations

from translane_server.printable import printable


class ExportError(Exception):
    """The checkpoint cannot be exported; the message is one sentence for whoever ran the command."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # it may quote a file
