"""Which cross-attention tells best what source token a target token comes from.

Of a trained Transformer's decoder layers some attend to the words that are translated next and others to what the
sentence needs as a whole; the average over a layer's heads aligns better than most single heads do. Garg et al. 2019
(https://arxiv.org/abs/1909.02074) find the penultimate layer's average to be the best. No alignments by people are
needed to choose: a layer that aligns words attends sharply, and to different source tokens as the translation goes on.
Either alone misleads, since a layer may stare at the end of the sentence or spread over all of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from translane_export.checks.activations import watched
from translane_export.core.errors import ExportError
from translane_export.model import Transformer
from translane_export.model.greedy import greedy_decode
from translane_server.bundle.manifest import Alignment
from translane_server.core.arrays import FloatArray

_MOST_SAMPLES = 16  # in PyTorch, which decodes the whole prefix at each step
_LONGEST = 96  # tokens
_CLEARLY = 1.02  # how much better a layer than the penultimate one has to do


def choose_alignment(model: Transformer, sources: Sequence[Sequence[int]], layer: int | None = None) -> Alignment:
    """Choose a decoder layer, all of whose heads are averaged.

    The layer with the largest mean over the sentences of sharpness · coverage (see `score`), over greedy translations
    of `sources`; the penultimate one if none is clearly better than that, or there is no source to tell. ``sources``
    end with the end-of-sentence id, and the first 16 that are not too long are looked at. ``layer``, from 0, is taken
    whatever it does.

    Raises:
        ExportError: the model has no such layer.
    """
    config = model.config
    if layer is not None and layer >= config.decoder_layers:
        raise ExportError(
            f"--alignment-layer is {layer}, and the model's decoder layers are 0 to {config.decoder_layers - 1}"
        )
    heads = tuple(range(config.heads))
    if layer is None:
        scores = _score_layers(model, sources)
        layer = max(0, config.decoder_layers - 2)
        best = int(np.argmax(scores))
        if scores[best] > _CLEARLY * scores[layer]:
            layer = best
    return Alignment(layer=layer, heads=heads)


def score(weights: FloatArray) -> float:
    """Return sharpness · coverage of a sentence's attention weights [T, S], the last source token being its end.

    Sharpness is the mean of each step's largest weight. Coverage is the share of the source tokens, the end apart, to
    which some step attends most; of as many of them as there are steps, where those are fewer.
    """
    steps, size = weights.shape
    most = weights.argmax(axis=1)
    sharpness = float(weights.max(axis=1).mean())
    coverage: float = len(set(most.tolist()) - {size - 1}) / max(1, min(steps, size - 1))
    return sharpness * coverage


@contextlib.contextmanager
def recorded_attention(model: Transformer, layers: Container[int] | None = None) -> Iterator[list[Tensor]]:
    """Give a list to which each decoder layer adds its cross-attention weights [B, H, T, S] as it runs, unpadded.

    With `layers`, only these do.
    """
    weights: list[Tensor] = []

    def record(name: str, attention: Any, given: tuple[Any, ...], _output: object) -> None:
        if name.endswith("cross_attention") and (layers is None or int(name.split(".")[2]) in layers):
            weights.append(attention.weights(*given))

    with watched(model, record):
        yield weights


def _score_layers(model: Transformer, sources: Sequence[Sequence[int]]) -> npt.NDArray[np.float64]:
    """Return the mean score of each layer, [N]; zeros where there is nothing to look at."""
    config = model.config
    limit = min(_LONGEST, config.max_positions - 1)
    looked_at = [list(source) for source in sources if 1 < len(source) <= limit][:_MOST_SAMPLES]
    scores = np.zeros((len(looked_at), config.decoder_layers))
    targets = greedy_decode(model, looked_at, limit, complete=True)
    for number, (source, target) in enumerate(zip(looked_at, targets, strict=True)):
        if not target:
            continue
        with torch.inference_mode(), recorded_attention(model) as weights:
            source_ids, lengths = torch.tensor([source]), torch.tensor([len(source)])
            # the step that reads y[t-1] chooses y[t], so the last token is not read
            model.decode(torch.tensor([[config.start_id, *target[:-1]]]), model.encode(source_ids, lengths), lengths)
        scores[number] = [score(layer[0].mean(0).numpy()) for layer in weights]
    totals: npt.NDArray[np.float64] = scores.sum(axis=0) / max(1, len(looked_at))
    return totals
