"""Subword regularisation (Kudo 2018, https://arxiv.org/abs/1804.10959): train on drawn segmentations.

SentencePiece draws too, but seeds its generator differently in each process, and a resumed run could not repeat itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from translane_export.train.vocabulary import Vocabulary


class SegmentationSampler:
    """The best segmentations of some texts, to draw one of each from."""

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[str], *, alpha: float, nbest: int) -> None:
        """Find the `nbest` segmentations of each text by the unigram model; `alpha` smooths their distribution.

        A segmentation x is drawn with a probability proportional to P(x)^alpha: 0 is uniform, 1 is the model's own.
        """
        candidates = [vocabulary.best_segmentations(text, nbest) for text in texts]
        counts = np.array([len(segmentations) for segmentations in candidates])
        self._candidates = list(itertools.chain.from_iterable(candidates))
        self._starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        self._owners = np.repeat(np.arange(len(counts)), counts)
        self._logits = alpha * np.array([segmentation.log_probability for segmentation in self._candidates])

    def draw(self, seed: Sequence[int]) -> list[list[int]]:
        """Return the ids of one segmentation of each text; the same seed draws the same ones."""
        # The largest of logits + Gumbel noise is a draw from their softmax, for all texts at once.
        keys = self._logits + np.random.default_rng(seed).gumbel(size=len(self._logits))
        best = np.maximum.reduceat(keys, self._starts)
        return [self._candidates[index].ids for index in np.flatnonzero(keys == best[self._owners])]
