"""The exporter's comparison with PyTorch, for a model and a backend in memory."""

from typing import Any

from translane_export.checks.recording import record_decodes
from translane_export.checks.verify import compare


def check_parity(backend: Any, model: Any, sources: Any, numerics: Any, *, alignment: Any = None) -> Any:
    """Decode `sources` with `backend` and compare every step with `model`."""
    decodes = record_decodes(backend, model.config, sources, attention=alignment is not None)
    return compare(decodes, model, numerics, alignment)
