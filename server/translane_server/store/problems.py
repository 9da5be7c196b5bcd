"""Why a download fails. A message is the end of a sentence that has named the bundle and the file.

::

    DownloadError         it fails for good
    ├── PassingError        another attempt may succeed
    │   └── RangeError        so may one that begins at the first byte
    └── StoppedError        nobody wants it any more

No message quotes an address, because an address may hold a secret.
"""

from __future__ import annotations


class DownloadError(Exception):
    """A file cannot be downloaded."""


class PassingError(DownloadError):
    """A file cannot be downloaded now."""


class RangeError(PassingError):
    """The rest of a file cannot be downloaded."""


class StoppedError(DownloadError):
    """The download was given up."""

    def __init__(self) -> None:
        super().__init__("the download was given up, because the server stops")
