"""The two graphs as TorchScript, for programs on LibTorch: no Python, no ONNX Runtime.

The inputs and outputs are those of the ONNX graphs, in the same order; caches go in and come out as new tensors.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from translane_export.graphs import DecoderGraph, EncoderGraph
from translane_export.model import TransformerConfig
from translane_export.onnx_export import decoder_example, encoder_example
from translane_server.backend import Candidates, Int32Array, IntArray, StepNeeds

ENCODER, DECODER = "encoder.pt", "decoder.pt"


def save_torchscript(encoder: EncoderGraph, decoder: DecoderGraph, config: TransformerConfig, folder: Path) -> None:
    """Write both graphs as TorchScript files into `folder`."""
    with torch.no_grad(), _no_deprecations():
        for graph, example, name in (
            (encoder, encoder_example(config), ENCODER),
            (decoder, decoder_example(config, decoder.dtype), DECODER),
        ):
            _trace(graph, example).save(str(folder / name))


class TorchScriptBackend:
    """Runs the saved files; see `translane_export.verify.StepBackend`."""

    def __init__(
        self, folder: Path, config: TransformerConfig, *, rows: int, source_capacity: int, target_capacity: int
    ) -> None:
        with _no_deprecations():
            self._encoder = _load(folder / ENCODER)
            self._decoder = _load(folder / DECODER)
        self._source_lengths = torch.ones(rows, dtype=torch.int32)
        self._pad = config.pad_id
        dtype = next(self._decoder.parameters()).dtype
        block = (rows, config.heads, target_capacity, config.head_dim)
        self._past = [torch.zeros(block, dtype=dtype) for _ in range(2 * config.decoder_layers)]
        block = (rows, config.heads, source_capacity, config.head_dim)
        self._cross = [torch.zeros(block, dtype=dtype) for _ in range(2 * config.decoder_layers)]

    @property
    def source_capacity(self) -> int:
        """See `StepBackend.source_capacity`."""
        return self._cross[0].shape[2]

    @property
    def target_capacity(self) -> int:
        """See `StepBackend.target_capacity`."""
        return self._past[0].shape[2]

    def encode(self, sources: Sequence[Sequence[int]], first_row: int) -> None:
        """See `StepBackend.encode`."""
        lengths = torch.tensor([len(source) for source in sources], dtype=torch.int32)
        longest = int(lengths.max())
        source_ids = torch.tensor([[*source, *[self._pad] * (longest - len(source))] for source in sources])  # [B, S]
        rows = slice(first_row, first_row + len(sources))
        with torch.inference_mode():
            for cache, encoded in zip(self._cross, self._encoder(source_ids, lengths), strict=True):
                cache[rows, :, :longest] = encoded
        self._source_lengths[rows] = lengths

    def decode_step(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds) -> Candidates:
        """See `StepBackend.decode_step`."""
        n = len(token_ids)
        caches: list[Tensor] = [cache[:n] for cache in (*self._past, *self._cross)]
        with torch.inference_mode():
            ids, log_probs, logits, *present = self._decoder(
                torch.from_numpy(token_ids),
                torch.from_numpy(positions),
                self._source_lengths[:n],
                torch.tensor([needs.num_candidates]),
                *caches,
            )
            for past, updated in zip(self._past, present, strict=True):
                past[:n] = updated
        return Candidates(ids.numpy(), log_probs.numpy(), logits.numpy())


# torch.jit has no annotations.
def _trace(graph: nn.Module, example: tuple[Tensor, ...]) -> Any:
    # the parity check sees other inputs than these; check_trace would repeat them
    return torch.jit.trace(graph.eval(), example, check_trace=False)  # type: ignore[no-untyped-call]


def _load(path: Path) -> Any:
    return torch.jit.load(str(path))  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _no_deprecations() -> Iterator[None]:
    """PyTorch would rather have its own format used; LibTorch programs load this one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.\w+` is deprecated", category=DeprecationWarning)
        yield
