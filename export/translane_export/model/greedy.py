"""Batched greedy decoding in plain PyTorch, for validation during training. Serving has its own decoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from translane_export.model.transformer import Transformer

_ROWS = 128


def greedy_decode(
    model: Transformer, sources: Sequence[list[int]], max_length: int | None = None, *, complete: bool = False
) -> list[list[int]]:
    """Translate source ids to target ids (no markers), in order.

    Sources have no markers, or are ``complete`` with all of the model's. Those of similar length share a batch, and
    rows leave it when they end. A translation stops at eos, at `max_length` tokens, or at twice its source's length
    plus ten (plus eight, markers counted) where that is shorter.
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
            batch = [sources[i] if complete else [*sources[i], config.eos_id] for i in indices]
            for index, ids in zip(indices, _decode_batch(model, batch, limit, device), strict=True):
                translations[index] = ids
    model.train(was_training)
    return translations


def _decode_batch(model: Transformer, sources: list[list[int]], limit: int, device: torch.device) -> list[list[int]]:
    config = model.config
    source_ids = pad_sequence(
        [torch.tensor(source) for source in sources], batch_first=True, padding_value=config.pad_id
    )  # [B, S]
    lengths = torch.tensor([len(source) for source in sources], device=device)
    memory = model.encode(source_ids.to(device), lengths)  # [B, S, M]
    tokens = torch.full((len(sources), 1), config.start_id, device=device)  # [B, T]
    finished: list[list[int]] = [[] for _ in sources]
    rows = list(range(len(sources)))
    caps = [min(limit, 2 * len(source) + 8) for source in sources]
    while rows:
        logits = model.decode(tokens, memory, lengths)[:, -1]  # [B, V]
        logits[:, list(config.suppressed_ids)] = -torch.inf
        next_ids = logits.argmax(dim=-1)  # [B]
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
