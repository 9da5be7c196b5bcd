"""Translates with a bundle as the server does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from translane_export.errors import ExportError
from translane_server.bundle.bundle import Bundle
from translane_server.core.errors import EngineError
from translane_server.engine import offline
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Hypothesis, Sentence, TargetVocabulary
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

_ROWS = 32


def translate_greedily(
    bundle: Bundle, sources: Sequence[Sequence[int]], forced_ids: Sequence[int], threads: int
) -> list[list[int]]:
    """Return the target ids of each of `sources`, which are as the model takes them; the longest are cut off.

    A source without tokens has a translation without tokens.

    Args:
        bundle: whose model translates.
        sources: ids.
        forced_ids: what each translation starts with.
        threads: of ONNX Runtime.

    Raises:
        ExportError: decoding fails.
        BundleError: the bundle does not load.
    """
    found = decode_greedily(bundle, sources, forced_ids, threads)
    return [list(each.token_ids) if each else [] for each in found]


def decode_greedily(
    bundle: Bundle, sources: Sequence[Sequence[int]], forced_ids: Sequence[int], threads: int, *, scores: bool = False
) -> list[Hypothesis | None]:
    """Return the translation of each of `sources`; None for a source without tokens. See `translate_greedily`.

    Args:
        bundle: whose model translates.
        sources: ids.
        forced_ids: what each translation starts with.
        threads: of ONNX Runtime.
        scores: whether translations have log-probabilities.

    Raises:
        ExportError: decoding fails.
        BundleError: the bundle does not load.
    """
    if not any(sources):
        return [None for _ in sources]
    limits, ids = bundle.manifest.limits, bundle.manifest.special_ids
    most = min(bundle.manifest.decoding_defaults.max_length, limits.target_tokens - len(forced_ids))
    longest = min(limits.source_tokens, max(map(len, sources)))
    backend = OrtBackend(
        Sessions(bundle, threads=threads), rows=_ROWS, source_capacity=longest, target_capacity=len(forced_ids) + most
    )
    options = DecodingOptions(most, scores=scores)
    sentences = [
        Sentence(list(source)[:longest], options, forced_ids=tuple(forced_ids)) for source in sources if source
    ]
    with closing(backend):
        try:
            results = iter(offline.decode(backend, TargetVocabulary(ids.decoder_start, ids.eos), sentences))
        except EngineError as error:
            raise ExportError(f"the exported model does not decode: {error}") from None
    return [next(results).hypotheses[0] if source else None for source in sources]
