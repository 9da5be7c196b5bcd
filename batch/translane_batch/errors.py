"""The errors of a run. The message of each is one sentence for the person who started it."""

from __future__ import annotations

from translane.command_error import CommandError
from translane_server.core.terminal import printable


class BatchError(CommandError):
    """A run ends early. The same command goes on, once the reason is gone.

    Attributes:
        exit_code: of the command: 1, or 2 where a setting is wrong.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(printable(message))  # it may quote a file
        self.exit_code = exit_code


class CorpusError(BatchError):
    """A file of the corpus cannot be read, or is not what its name or the settings say."""


class ResumeError(BatchError):
    """The work folder holds a run that this one does not continue, or another program works there."""
