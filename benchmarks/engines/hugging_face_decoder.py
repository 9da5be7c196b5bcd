"""Hugging Face's `generate` in PyTorch as a decoder of token ids. torch and transformers are imported where needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.models.workload import Load

os.environ.setdefault("HF_HUB_OFFLINE", "1")


class HuggingFaceDecoder:
    """`generate` on a folder of Hugging Face's, batch after batch, for loads of fixed lengths.

    It computes in float32 on the device cpu, and in float16 on cuda.
    """

    def __init__(self, model: Path, *, threads: int, device: str = "cpu") -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self._device = torch.device(device)
        kind = torch.float16 if device == "cuda" else torch.float32
        loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(model, dtype=kind)
        self._model = loaded.to(self._device).eval()
        self._pad = self._model.config.pad_token_id

    def prepare(self, load: Load) -> list[dict[str, Any]]:
        """What `decode` takes. Raises ValueError where the model is to end sentences."""
        import torch

        if load.lengths is None:
            raise ValueError("this decodes sentences of fixed lengths")
        calls = []
        for first in range(0, len(load.sources), load.batch):
            batch = [torch.tensor(source) for source in load.sources[first : first + load.batch]]
            ids = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=self._pad)
            sizes = torch.tensor([len(source) for source in batch])
            calls.append(
                {
                    "input_ids": ids.to(self._device),
                    "attention_mask": (torch.arange(ids.shape[1]) < sizes[:, None]).long().to(self._device),
                    "min_new_tokens": load.lengths[first],
                    "max_new_tokens": load.lengths[first],
                    "num_beams": load.beam_size,
                    "early_stopping": load.beam_size > 1,
                    "do_sample": False,
                }
            )
        return calls

    def decode(self, calls: list[dict[str, Any]]) -> list[Any]:
        import torch

        with torch.inference_mode():
            return [self._model.generate(**call).cpu() for call in calls]  # `cpu` waits for the device

    def token_ids(self, results: list[Any]) -> list[tuple[int, ...]]:
        """The translations in the order of the sources, without the token that the decoder starts with."""
        return [tuple(row[1:]) for batch in results for row in batch.tolist()]

    def close(self) -> None:
        self._model = None
