"""Batched greedy decoding in plain PyTorch, for validation during training. Serving has its own decoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from translane_export.model import Transformer
from translane_export.train.batches import EncodedPair, collate

_ROWS = 128


def greedy_decode(model: Transformer, sources: Sequence[list[int]], max_length: int | None = None) -> list[list[int]]:
    """Translate source ids (no markers) to target ids (no markers), in order.

    Sentences of similar length share a batch, and rows leave it when they end. A translation stops at eos, at
    `max_length` tokens, or at twice its source's length plus ten where that is shorter.
    The prefix is decoded anew at each step: on short sentences that costs less than a cache's bookkeeping.
    """
    config = model.config
    limit = min(max_length or config.max_positions, config.max_positions)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    translations: list[list[int]] = [[] for _ in sources]
    with torch.inference_mode():
        for start in range(0, len(order), _ROWS):
            indices = order[start : start + _ROWS]
            for index, ids in zip(
                indices, _decode_batch(model, [sources[i] for i in indices], limit, device), strict=True
            ):
                translations[index] = ids
    model.train(was_training)
    return translations


def _decode_batch(model: Transformer, sources: list[list[int]], limit: int, device: torch.device) -> list[list[int]]:
    config = model.config
    batch = collate([EncodedPair(source, []) for source in sources]).to(device)
    lengths = batch.source_lengths
    memory = model.encode(batch.source_ids, lengths)  # [B, S, M]
    tokens = torch.full((len(sources), 1), config.bos_id, device=device)  # [B, T]
    finished: list[list[int]] = [[] for _ in sources]
    rows = list(range(len(sources)))
    caps = [min(limit, 2 * len(source) + 10) for source in sources]
    while rows:
        next_ids = model.decode(tokens, memory, lengths)[:, -1].argmax(dim=-1)  # [B]
        tokens = torch.cat((tokens, next_ids[:, None]), dim=1)
        keep: list[int] = []
        for position, (row, token) in enumerate(zip(rows, next_ids.tolist(), strict=True)):
            if token != config.eos_id:
                finished[row].append(token)
            if token != config.eos_id and len(finished[row]) < caps[row]:
                keep.append(position)
        if len(keep) < len(rows):
            rows = [rows[position] for position in keep]
            kept = torch.tensor(keep, dtype=torch.long, device=device)
            tokens, memory, lengths = tokens[kept], memory[kept], lengths[kept]
    return finished
