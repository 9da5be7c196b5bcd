"""Everything `translane train` refuses or fails at, as one tree.

::

    TrainError                one sentence for whoever started the training
    ├── DataError               a line of the parallel text, or the whole of it, cannot be used
    └── ResumeError             the output folder holds a run that this one does not continue
"""

from __future__ import annotations

from translane.command_error import CommandError


class TrainError(CommandError):
    """Base of every error this package raises on purpose."""


class DataError(TrainError):
    """The parallel text cannot be used; the message names the file and, where there is one, the line."""


class ResumeError(TrainError):
    """The output folder holds a run that these settings do not continue."""
