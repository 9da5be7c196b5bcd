"""Exports that would take twice as long fail here: tests make a graph of every kind, so that none is left to users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn
from unittest import mock

from translane_export.graphs import exporter_shortcuts


@contextlib.contextmanager
def no_decomposition() -> Iterator[None]:
    """While entered, no graph has an operator that PyTorch's exporter would have to decompose."""
    with mock.patch.object(exporter_shortcuts, "_decompose", _refuse):
        yield


def _refuse(program: object, _registry: object) -> NoReturn:
    raise AssertionError(f"an operator of this graph has no translation to ONNX: {program}")
