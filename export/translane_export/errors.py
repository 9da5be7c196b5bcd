"""What the exporter refuses or fails at."""

from __future__ import annotations


class ExportError(Exception):
    """The checkpoint cannot be exported; the message is one sentence for whoever ran the command."""

    exit_code = 1
