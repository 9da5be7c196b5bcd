"""The error of a run."""

from __future__ import annotations

from translane.command_error import CommandError
from translane_server.core.terminal import printable


class BatchError(CommandError):
    """A run cannot begin, or ends early. The message is one sentence for the person who started it.

    Attributes:
        exit_code: of the command: 1, or 2 where a setting is wrong.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(printable(message))  # it may quote a file
        self.exit_code = exit_code
