"""The errors of `translane-plan`: each message is one sentence for a terminal."""

from __future__ import annotations

from translane_server.printable import printable


class PlanError(Exception):
    """There is no plan or no profile."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # it may quote a file
