"""Runs what was exported, by the server's own backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from translane_export.checks.recording import ADMITTED_TOGETHER, ROWS, Decode, record_decodes
from translane_export.checks.verify import LONGEST, verification_sources
from translane_export.errors import ExportError
from translane_export.graphs import torchscript
from translane_export.model import TransformerConfig
from translane_export.settings import ExportSettings
from translane_server.bundle.bundle import Bundle
from translane_server.core.errors import StartupError
from translane_server.runtime.backend import Backend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

_MOST_LOGITS = 1 << 23  # of a sentence that is verified (32 MB), unless it is no longer than this:
_SHORTEST = 96
_MOST_SAMPLES = 128  # verified with: their logits wait in a file until PyTorch's are there

Log = Callable[[str], None]


def decode_sources(
    settings: ExportSettings, bundle: Bundle, samples: list[list[int]], config: TransformerConfig, log: Log
) -> list[Decode]:
    """Decode the sources to verify with; what runs the graphs is gone from memory afterwards.

    Raises:
        ExportError: the graphs do not load, or choose an id that there is not.
    """
    limits = bundle.manifest.limits
    longest = min(LONGEST, max(_SHORTEST, _MOST_LOGITS // config.target_vocab_size))
    source_capacity, target_capacity = min(limits.source_tokens, longest), min(limits.target_tokens, longest)
    sources = verification_sources(samples[:_MOST_SAMPLES], config, source_capacity)
    try:
        backend = _open_backend(settings, bundle, config, source_capacity, target_capacity)
    except StartupError as error:
        raise ExportError(f"the exported model does not load: {error}") from error
    log(f"verifying with {len(sources)} sentences")
    return record_decodes(
        backend,
        config,
        sources,
        attention=bundle.manifest.alignment is not None,
        greedy=bundle.manifest.graphs.greedy is not None,
        folder=bundle.folder,
        progress=every_tenth(log, "decoded"),
    )


def _open_backend(
    settings: ExportSettings, bundle: Bundle, config: TransformerConfig, source_capacity: int, target_capacity: int
) -> Backend:
    capacities: dict[str, Any] = {
        "rows": ROWS,
        "source_capacity": source_capacity,
        "target_capacity": target_capacity,
    }
    if settings.format == "torchscript":
        return torchscript.TorchScriptBackend(bundle.folder, config, **capacities)
    encode_tokens = ADMITTED_TOGETHER * source_capacity
    return OrtBackend(Sessions(bundle, threads=settings.computing_threads), encode_tokens=encode_tokens, **capacities)


def try_out(settings: ExportSettings, bundle: Bundle) -> None:
    """Run the graphs once, of a bundle whose translations nothing else asks for.

    Raises:
        ExportError: they do not run.
    """
    limits = bundle.manifest.limits
    try:
        backend = OrtBackend(
            Sessions(bundle, threads=settings.computing_threads),
            rows=2,
            source_capacity=min(limits.source_tokens, LONGEST),
            target_capacity=min(limits.target_tokens, LONGEST),
        )
        backend.warm_up()
        backend.close()
    except StartupError as error:
        raise ExportError(f"the exported model does not run: {error}") from error


def every_tenth(log: Log, what: str) -> Callable[[int, int], None]:
    """Return what reports progress to `log`, ten times in all."""

    def report(done: int, total: int) -> None:
        if done * 10 // total > (done - 1) * 10 // total:
            log(f"{what} {done}/{total} sentences")

    return report
