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

from translane_export.graphs.encoder_decoder import DecoderGraph, EncoderGraph
from translane_export.graphs.head_padding import padded_config
from translane_export.graphs.onnx_export import example_inputs
from translane_export.graphs.signatures import own_caches
from translane_export.model import TransformerConfig
from translane_server.bundle.manifest import Graphs
from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.runtime.backend import BEST_TOKEN, Candidates, RowMove, StepNeeds, Stops, never

ENCODER, DECODER = "encoder.pt", "decoder.pt"


def save_torchscript(encoder: EncoderGraph, decoder: DecoderGraph, graphs: Graphs, folder: Path) -> None:
    """Write both graphs as TorchScript files into `folder`."""
    with torch.no_grad(), _no_deprecations():
        for graph, signature in ((encoder, graphs.encoder), (decoder, graphs.decoder)):
            _trace(graph, example_inputs(signature)).save(str(folder / signature.file))


class TorchScriptBackend:
    """Runs the saved files of a folder in PyTorch, on the CPU; see `translane_server.runtime.backend.Backend`."""

    has_attention = False
    steps_at_once = 1
    stops_between_steps = True

    def __init__(
        self, folder: Path, config: TransformerConfig, *, rows: int, source_capacity: int, target_capacity: int
    ) -> None:
        self.rows, self.source_capacity, self.target_capacity = rows, source_capacity, target_capacity
        with _no_deprecations():
            self._encoder, self._decoder = _load(folder / ENCODER), _load(folder / DECODER)
        self._source_lengths = torch.ones(rows, dtype=torch.int32)
        self._pad = config.pad_id
        self._vocab_size = config.target_vocab_size
        dtype = next(self._decoder.parameters()).dtype
        count, shape = own_caches(config, target_capacity)
        self._past = [torch.zeros(rows, *shape, dtype=dtype) for _ in range(count)]
        block = (rows, config.key_value_heads, source_capacity, padded_config(config).head_dim)
        self._cross = [torch.zeros(block, dtype=dtype) for _ in range(2 * config.decoder_layers)]
        self._encoded: list[Tensor] = []  # of the sources that may enter, [B, heads, S, head_dim] each
        self._encoded_lengths = self._source_lengths  # [B]

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        self._encoded_lengths = torch.tensor([len(source) for source in sources], dtype=torch.int32)
        longest = int(self._encoded_lengths.max())
        source_ids = torch.tensor([[*source, *[self._pad] * (longest - len(source))] for source in sources])  # [B, S]
        with torch.inference_mode():
            self._encoded = self._encoder(source_ids, self._encoded_lengths)
        return len(sources)

    def enter(
        self,
        sources: Sequence[int],
        rows: Sequence[int],
        allowed: Sequence[Sequence[int] | None] = (),  # noqa: ARG002 every token is
    ) -> None:
        for cache, encoded in zip(self._cross, self._encoded, strict=True):
            cache[list(rows), :, : encoded.shape[2]] = encoded[list(sources)]
        self._source_lengths[list(rows)] = self._encoded_lengths[list(sources)]

    def decode_step(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN, keep: int | None = None
    ) -> Candidates:
        assert keep is None, "this format gives no attention weights"
        n = len(token_ids)
        caches: list[Tensor] = [cache[:n] for cache in (*self._past, *self._cross)]
        with torch.inference_mode():
            ids, log_probs, logits, *present = self._decoder(
                torch.from_numpy(token_ids.copy()),
                torch.from_numpy(positions.copy()),
                self._source_lengths[:n],
                torch.tensor([min(needs.num_candidates, self._vocab_size)]),
                *caches,
            )
            for past, updated in zip(self._past, present, strict=True):
                past[:n] = updated
        return Candidates(ids.numpy(), log_probs.numpy(), logits.numpy())

    def decode_ahead(
        self,
        token_ids: IntArray,
        positions: Int32Array,
        steps: int,
        eos: int | None = None,
        stops: Stops = never,
        keep: int | None = None,
    ) -> IntArray:
        raise NotImplementedError("steps are taken one by one")

    def align(self, row: int, first: int, rows: Sequence[int]) -> FloatArray:
        raise NotImplementedError("this format gives no attention weights")

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        for move in moves:
            for cache in (*self._past, *self._cross):
                cache[move.target] = cache[move.source]
            self._source_lengths[move.target] = self._source_lengths[move.source]

    def close(self) -> None:
        self._past, self._cross, self._encoded = [], [], []


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
