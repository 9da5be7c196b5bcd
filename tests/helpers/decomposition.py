"""Makes an export fail if PyTorch would decompose an operator, which takes twice as long.

Tests export every kind of graph, so no user's export is decomposed.
"""

import contextlib
from collections.abc import Iterator
from typing import NoReturn
from unittest import mock

from translane_export.graphs import exporter_shortcuts


@contextlib.contextmanager
def no_decomposition() -> Iterator[None]:
    """While entered, an export fails if PyTorch's exporter would have to decompose an operator."""
    with mock.patch.object(exporter_shortcuts, "_decompose", _refuse):
        yield


def _refuse(program: object, _registry: object) -> NoReturn:
    raise AssertionError(f"an operator of this graph has no translation to ONNX: {program}")
