"""Beam search in PyTorch: the server's search over the exporter's graphs, which run as they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from translane_export.core.errors import ExportError
from translane_export.graphs.encoder_decoder import DecoderGraph, EncoderGraph
from translane_export.graphs.torchscript import TorchBackend
from translane_export.model import Transformer
from translane_server.core.errors import EngineError
from translane_server.engine import offline
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence, TargetVocabulary

_ROWS = 64  # hypotheses that decode at once


def beam_search(
    model: Transformer, sources: Sequence[Sequence[int]], *, size: int, length_penalty: float = 1.0
) -> list[list[int]]:
    """Return the best translation of each source as target ids, without markers, in order; on the CPU.

    It is the best of `size` beams by log-probability / length ^ `length_penalty`.
    Sources have no markers. A translation has at most as many tokens as greedy decoding would give it: twice its
    source's, plus ten, within the model's positions.

    Raises:
        ExportError: decoding fails.
    """
    if not sources:
        return []
    config = model.config
    complete = [[*source, config.eos_id] for source in sources]
    sentences = [
        Sentence(
            source,
            DecodingOptions(
                min(config.max_positions, 2 * len(source) + 8),
                beam_size=size,
                length_penalty=length_penalty,
            ),
        )
        for source in complete
    ]
    was_training = model.training
    model.eval()
    backend = TorchBackend(
        EncoderGraph(model),
        DecoderGraph(model),
        config,
        rows=_ROWS,
        source_capacity=max(map(len, complete)),
        target_capacity=max(sentence.options.max_length for sentence in sentences),
    )
    with closing(backend):
        try:
            results = offline.decode(backend, TargetVocabulary(config.start_id, config.eos_id), sentences)
        except EngineError as error:
            raise ExportError(f"the model does not decode: {error}") from None
    model.train(was_training)
    return [list(result.hypotheses[0].token_ids) for result in results]
