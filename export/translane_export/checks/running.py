"""Runs what was exported: opens a bundle and decodes, by the server's own backend and engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from translane.progress import Progress, is_terminal
from translane_export.checks.recording import ADMITTED_TOGETHER, ROWS, Decode, record_decodes
from translane_export.checks.verify import LONGEST, verification_sources
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.graphs import torchscript
from translane_export.model import TransformerConfig
from translane_server.bundle.bundle import Bundle
from translane_server.core.errors import EngineError, StartupError
from translane_server.engine import offline
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Hypothesis, Sentence, TargetVocabulary
from translane_server.runtime.backend import Backend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

_MOST_LOGITS = 1 << 23  # of a sentence that is verified (32 MB), unless it is no longer than this:
_SHORTEST = 96
_MOST_SAMPLES = 128  # verified with: their logits wait in a file until PyTorch's are there
_MOST_ROWS = 32  # decoded together, unless a sentence has more beams

Log = Callable[[str], None]


def decode(bundle: Bundle, sentences: Sequence[Sentence], threads: int) -> list[Hypothesis]:
    """Open a bundle, and return the best translation of each sentence.

    None of them is longer than the limits of the model.

    Raises:
        ExportError: decoding fails.
        BundleError: the bundle does not load.
    """
    if not sentences:
        return []
    ids = bundle.manifest.special_ids
    sessions = Sessions(bundle, threads=threads)
    backend = OrtBackend(
        sessions,
        rows=max(min(_MOST_ROWS, len(sentences)), *(each.options.beam_size for each in sentences)),
        source_capacity=max(len(each.source_ids) for each in sentences),
        target_capacity=max(len(each.forced_ids) + each.options.max_length for each in sentences),
    )
    with closing(sessions), closing(backend):
        try:
            results = offline.decode(backend, TargetVocabulary(ids.decoder_start, ids.eos), sentences)
        except EngineError as error:
            raise ExportError(f"the model does not decode: {error}") from None
    return [result.hypotheses[0] for result in results]


def decode_greedily(
    bundle: Bundle, sources: Sequence[Sequence[int]], forced_ids: Sequence[int], threads: int, *, scores: bool = False
) -> list[Hypothesis | None]:
    """Return the translation of each of `sources`, cut off at the model's limits; None for a source without tokens.

    Every translation starts with `forced_ids`, and has log-probabilities with `scores`. Raises as `decode` does.
    """
    limits = bundle.manifest.limits
    most = min(bundle.manifest.decoding_defaults.max_length, limits.target_tokens - len(forced_ids))
    options = DecodingOptions(most, scores=scores)
    sentences = [
        Sentence(list(source)[: limits.source_tokens], options, forced_ids=tuple(forced_ids))
        for source in sources
        if source
    ]
    found = iter(decode(bundle, sentences, threads))
    return [next(found) if source else None for source in sources]


def translate_greedily(
    bundle: Bundle, sources: Sequence[Sequence[int]], forced_ids: Sequence[int], threads: int
) -> list[list[int]]:
    """Return the ids of each translation, none for a source without tokens; see `decode_greedily`."""
    return [list(each.token_ids) if each else [] for each in decode_greedily(bundle, sources, forced_ids, threads)]


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
    """Run the graphs once, of a bundle whose translations nothing else asks for."""
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
    """Return what reports progress: as a bar on a terminal, and elsewhere to `log`, ten times in all."""
    progress = Progress(f"sentences {what}", stream=sys.stderr)

    def report(done: int, total: int) -> None:
        if is_terminal(sys.stderr):
            progress.total = total
            progress.add(done - progress.count)
            if done == total:
                progress.close()
        elif done * 10 // total > (done - 1) * 10 // total:
            log(f"{what} {done}/{total} sentences")

    return report
