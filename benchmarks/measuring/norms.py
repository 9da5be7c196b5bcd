"""What three norms make of sentences of unequal length: how much a vector depends on padding and on other sentences.

The vectors are embeddings with sinusoidal positions, which is what the first norm of a pre-norm Transformer gets.
Shapes: B sentences, S tokens of the longest one, N real tokens, M model size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from translane_export.model.positions import sinusoid_table

M = 64
PIECES = 500
LONGEST = 40  # tokens
_EPSILON = 1e-5
_DRAWS = 40

Norm = Callable[[Tensor], Tensor]
# Norms of single vectors: what they make of one does not depend on any other.
ALONE: dict[str, Norm] = {
    "layer": nn.LayerNorm(M, _EPSILON, elementwise_affine=False),
    "rms": nn.RMSNorm(M, _EPSILON, elementwise_affine=False),
}


@dataclass(frozen=True)
class Statistics:
    """Mean and variance of each feature, both [M]: what a batch norm subtracts and divides by."""

    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, vectors: Tensor) -> Statistics:
        """Those of vectors [N, M]."""
        return cls(vectors.mean(0), vectors.var(0, unbiased=False))

    def apply(self, vectors: Tensor) -> Tensor:
        """[..., M] -> [..., M]."""
        return (vectors - self.mean) / (self.variance + _EPSILON).sqrt()


class Sentences:
    """Draws sentences of tokens whose frequencies are those of words (the n-th one is 1 / n), and embeds them."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._vectors = torch.randn(PIECES, M, generator=self._generator)
        self._positions = sinusoid_table(LONGEST, M)
        self._frequencies = 1 / torch.arange(1, PIECES + 1)

    def embed(self, length: int) -> Tensor:
        """A new sentence [length, M]."""
        pieces = torch.multinomial(self._frequencies, length, replacement=True, generator=self._generator)
        return self._vectors[pieces] + self._positions[:length]

    def batch(self, count: int) -> list[Tensor]:
        """New sentences of 3 to `LONGEST` tokens."""
        lengths = torch.randint(3, LONGEST + 1, (count,), generator=self._generator).tolist()
        return [self.embed(length) for length in lengths]

    def padding(self, length: int) -> Tensor:
        """What embedding gives at padding after `length` tokens, where its vector is zero: [LONGEST - length, M]."""
        return self._positions[length:]


def distance(found: Tensor, expected: Tensor) -> float:
    """Root of the mean square of a difference. Outputs of norms have 1 on average, so this is a share."""
    return float((found - expected).square().mean().sqrt())


def moved_by_padding(shares: Sequence[float], rows: int = 32) -> dict[str, list[float]]:
    """How far padding moves the normalised vectors of real tokens, by the share of positions that are padding.

    One sentence is the longest, and all others are so short that the share is reached.
    """
    moved: dict[str, list[float]] = {"batch": [], **{name: [] for name in ALONE}}
    for share in shares:
        sentences = Sentences()
        length = max(1, round(LONGEST * (1 - share * rows / (rows - 1))))
        batch = [sentences.embed(LONGEST), *(sentences.embed(length) for _ in range(rows - 1))]
        real = torch.cat(batch)  # [N, M]
        padded = torch.stack([torch.cat((row, sentences.padding(len(row)))) for row in batch])  # [B, S, M]
        is_real = torch.arange(LONGEST) < torch.tensor([[len(row)] for row in batch])  # [B, S]
        everything = Statistics.of(padded.flatten(0, 1))
        moved["batch"].append(distance(everything.apply(real), Statistics.of(real).apply(real)))
        for name, norm in ALONE.items():
            moved[name].append(distance(norm(padded)[is_real], norm(real)))
    return moved


def moved_by_others(counts: Sequence[int]) -> dict[str, list[float]]:
    """How far the other sentences of a batch move one sentence's normalised vectors in training, by sentences.

    Padding is left out of the statistics. The distance is to the mean over many batches.
    """
    moved: dict[str, list[float]] = {"batch": [], **{name: [] for name in ALONE}}
    for count in counts:
        sentences = Sentences()
        one = sentences.embed(LONGEST // 2)
        batches = [torch.cat([one, *sentences.batch(count - 1)]) for _ in range(_DRAWS)]
        kinds: dict[str, list[Tensor]] = {"batch": [Statistics.of(batch).apply(one) for batch in batches]}
        kinds |= {name: [norm(batch)[: len(one)] for batch in batches] for name, norm in ALONE.items()}
        for name, outputs in kinds.items():
            stacked = torch.stack(outputs)
            moved[name].append(distance(stacked, stacked.mean(0).expand_as(stacked)))
    return moved


def gap_at_inference(counts: Sequence[int]) -> dict[str, list[float]]:
    """How far running statistics are from those of a batch of so many sentences, in normalised vectors.

    Training normalises with the batch's statistics, and inference with the running ones.
    """
    sentences = Sentences()
    running = Statistics.of(torch.cat(sentences.batch(5_000)))
    gaps: list[float] = []
    for count in counts:
        batches = [torch.cat(sentences.batch(count)) for _ in range(_DRAWS)]
        gaps.append(sum(distance(Statistics.of(each).apply(each), running.apply(each)) for each in batches) / _DRAWS)
    return {"batch": gaps, **{name: [0.0] * len(counts) for name in ALONE}}
