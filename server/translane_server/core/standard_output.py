"""Standard output of a command, whose reader may stop before the end."""

from __future__ import annotations

import os
import sys


def write_output(text: str) -> None:
    """Write `text` and a line's end. A reader who has gone is no error.

    Raises:
        OSError: it cannot be written, as on a full disk.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again as it ends
        if not isinstance(error, BrokenPipeError):
            raise
