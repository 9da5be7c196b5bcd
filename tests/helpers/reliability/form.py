"""The short form of the tests of reliability, which every run of the tests has, and the long form."""

import os
from typing import TypeVar

_Value = TypeVar("_Value")

IS_LONG = os.environ.get("RELIABILITY") == "long"


def form(short: _Value, long: _Value) -> _Value:
    """Return `long` if the environment variable RELIABILITY is "long", else `short`."""
    return long if IS_LONG else short
