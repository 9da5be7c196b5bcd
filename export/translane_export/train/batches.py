"""Batches of similar length, or of all, in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from translane_export.train.vocabulary import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class EncodedPair:
    """The ids of a sentence pair, without begin or end markers."""

    source: list[int]
    target: list[int]

    @property
    def target_tokens(self) -> int:
        """Target tokens that count in the loss: the end marker is one."""
        return len(self.target) + 1

    @property
    def width(self) -> int:
        """Positions this pair takes on its longer side, end marker included."""
        return max(len(self.source), len(self.target)) + 1


class Batch(NamedTuple):
    """Padded ids: source ends with eos; target_input starts with bos, target_output is the same one step later."""

    source_ids: torch.Tensor  # [B, S]
    source_lengths: torch.Tensor  # [B]
    target_input: torch.Tensor  # [B, T]
    target_output: torch.Tensor  # [B, T]

    def to(self, device: torch.device) -> Batch:
        """Return the batch on `device`."""
        return Batch(*(tensor.to(device) for tensor in self))


def plan_batches(
    pairs: Sequence[EncodedPair], max_tokens: int, seed: int, epoch: int, *, mixed: bool = False
) -> list[list[int]]:
    """Return the epoch's batches as indices into `pairs`.

    Pairs are shuffled, sorted by length (ties keep the shuffled order) and cut so that rows x longest side stays within
    `max_tokens`; then the batches are shuffled. A pair longer than `max_tokens` gets a batch of its own.

    ``mixed`` batches have all lengths, and more padding: nothing is sorted. A batch norm needs them: by the statistics
    of a sorted batch a model learns how long its translations are to be, and no running average tells it afterwards.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(pairs)).tolist()
    if not mixed:
        order.sort(key=lambda index: (len(pairs[index].target), len(pairs[index].source)))
    batches: list[list[int]] = []
    rows: list[int] = []
    widest = 0
    for index in order:
        widest = max(widest, pairs[index].width)
        if rows and widest * (len(rows) + 1) > max_tokens:
            batches.append(rows)
            rows, widest = [], pairs[index].width
        rows.append(index)
    batches.append(rows)
    return [batches[position] for position in random.permutation(len(batches))]


def collate(pairs: Sequence[EncodedPair]) -> Batch:
    """Pad the pairs to one batch."""
    sources = [torch.tensor([*pair.source, EOS_ID]) for pair in pairs]
    return Batch(
        source_ids=_pad(sources),
        source_lengths=torch.tensor([len(source) for source in sources]),
        target_input=_pad([torch.tensor([BOS_ID, *pair.target]) for pair in pairs]),
        target_output=_pad([torch.tensor([*pair.target, EOS_ID]) for pair in pairs]),
    )


def _pad(sequences: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(sequences, batch_first=True, padding_value=PAD_ID)
