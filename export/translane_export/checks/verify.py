"""Compares what was exported with the PyTorch model, over real greedy decodes.

PyTorch sees each sentence alone, in one full forward pass without any cache over the tokens that the exported model
chose (see `translane_export.checks.recording`). It need not be in memory before that.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from translane_export.checks.activations import ActivationWatch, check_activations, watched
from translane_export.checks.alignment_layer import recorded_attention
from translane_export.checks.recording import Decode
from translane_export.core.errors import ExportError
from translane_export.graphs.numerics import Numerics
from translane_export.model import Transformer, TransformerConfig
from translane_server.bundle.manifest import Alignment, Parity
from translane_server.core.arrays import FloatArray, IntArray

LONGEST = 512
_STEPS_AT_ONCE = 16  # compared: of a large vocabulary a step has a megabyte of logits
_RANDOM_LENGTHS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 96)
_ROUNDINGS = 4  # runs that tell how far rounding moves a step
_ROUNDING_FACTOR = 8.0  # long sums round more than once, and four runs do not meet the worst case
_LEAST_VERIFIED = 0.1  # share of the steps whose logits rounding leaves where they are


def verification_sources(samples: Iterable[Sequence[int]], config: TransformerConfig, capacity: int) -> list[list[int]]:
    """Return the sources to verify with: the samples that fit, and random ids of many lengths up to `capacity`."""
    generator = random.Random(0)  # noqa: S311 the same sources at every export, nothing secret
    sources = [list(sample) for sample in samples if 0 < len(sample) <= capacity]
    ordinary = [i for i in range(config.source_vocab_size) if i not in (config.pad_id, config.bos_id, config.eos_id)]
    for length in sorted({capacity, *(min(length, capacity) for length in _RANDOM_LENGTHS)}):
        sources.append([*generator.choices(ordinary, k=length - 1), config.eos_id])
    generator.shuffle(sources)
    return sources


def compare(
    decodes: Sequence[Decode],
    reference: Transformer,
    numerics: Numerics,
    alignment: Alignment | None = None,
    progress: Callable[[int], object] = lambda _number: None,
) -> Parity:
    """Compare every step of `decodes` with `reference`.

    With an `alignment`, which says where recorded attention weights are from, compare those as well. Where rounding
    alone moves a step by more than the tolerance, its difference counts as so much smaller. Where `numerics` compute in
    float16, keep the largest number that the model computes. `progress` is told the number of sentences that are done.

    Raises:
        ExportError: the model computes numbers too large for float16, or rounding moves nearly every step so far that
            nothing can be said.
    """
    watch = _watch_for(numerics, reference, decodes)
    of_decodes: list[_Differences] = []
    for decode in decodes:
        of_decodes.append(_compare(decode, reference, numerics, alignment, watch))
        progress(1)
    found = _Differences(*map(np.concatenate, zip(*of_decodes, strict=True)))
    tokens, lost = len(found.logits), int(found.lost.sum())
    activation = watch.largest if watch else None
    if activation:
        check_activations(activation)
    if tokens - lost < _LEAST_VERIFIED * tokens:
        raise ExportError(
            f"the exported model cannot be verified: rounding in {str(numerics.dtype).removeprefix('torch.')} alone"
            f" changes the logits of {lost} of {tokens} steps by more than they differ from one another"
        )
    return Parity(
        sentences=len(decodes),
        tokens=tokens,
        max_logit_difference=float(found.logits.max()),
        tolerance=numerics.tolerance,
        token_mismatches=int((found.wrong | (found.shortfall > numerics.token_margin)).sum()),
        max_attention_difference=float(found.attention.max()) if alignment else None,
        attention_tolerance=numerics.attention_tolerance if alignment else None,
        max_activation=activation,
    )


def passes(parity: Parity) -> bool:
    """Whether every logit and attention weight is within the tolerance and every token is PyTorch's."""
    attention, most = parity.max_attention_difference, parity.attention_tolerance
    aligned = attention is None or most is None or attention <= most
    return aligned and parity.max_logit_difference <= parity.tolerance and parity.token_mismatches == 0


class _Differences(NamedTuple):
    """How the steps of a decode, or of all, differ from PyTorch's, all [T]."""

    logits: FloatArray  # of logits and log-probabilities, the largest
    shortfall: FloatArray  # how much better PyTorch likes another token than the one that was chosen [logits]
    wrong: npt.NDArray[np.bool_]  # whether the candidates are not those of the logits that came with them
    attention: FloatArray  # of attention weights, the largest
    lost: npt.NDArray[np.bool_]  # whether rounding moves logits by more than they differ from one another


def _watch_for(numerics: Numerics, reference: Transformer, decodes: Sequence[Decode]) -> ActivationWatch | None:
    """Return what is to watch PyTorch; it has seen the padding beside the longest source."""
    if numerics.dtype != torch.float16:
        return None
    watch = ActivationWatch()
    watch.see_padding(reference, max((decode.source for decode in decodes), key=len))
    return watch


def _compare(
    decode: Decode,
    reference: Transformer,
    numerics: Numerics,
    alignment: Alignment | None,
    watch: ActivationWatch | None,
) -> _Differences:
    steps = np.arange(len(decode.tokens))
    with watched(reference, watch.see) if watch else contextlib.nullcontext():
        forced = _force(reference, decode, alignment)
        parts = [_compare_steps(decode, block, forced.project(block), reference.config) for block in _blocks(steps)]
    logits, shortfall, wrong = (np.concatenate(part) for part in zip(*parts, strict=True))
    attention = np.zeros_like(logits)
    if forced.attention is not None:
        assert decode.attention is not None, "weights are kept wherever there is an alignment"
        beyond = decode.attention.shape[1] - forced.attention.shape[1]
        attention = _largest(decode.attention, np.pad(forced.attention, ((0, 0), (0, beyond))))
    exact = (
        (logits <= numerics.tolerance)
        & (shortfall <= numerics.token_margin)
        & (attention <= numerics.attention_tolerance)
    )
    lost = np.zeros_like(exact)
    if not exact.all():
        inexact = steps[~exact]
        moved, attention_moved, spread = _rounding(forced, decode, alignment, inexact, numerics.dtype)
        logits[inexact] /= np.maximum(1, moved / numerics.tolerance)
        shortfall[inexact] -= 2 * moved  # either token may be off by as much
        attention[inexact] /= np.maximum(1, attention_moved / numerics.attention_tolerance)
        lost[inexact] = ~(moved < spread)
    return _Differences(logits, shortfall, wrong, attention, lost)


@dataclass(frozen=True)
class _Forced:
    """What PyTorch makes of a decode's tokens."""

    reference: Transformer
    hidden: Tensor  # the decoder's output [T, M]
    attention: FloatArray | None  # of the alignment's heads [T, S]

    def project(self, steps: IntArray) -> Tensor:
        """Return the logits [t, V] of some steps."""
        with torch.inference_mode():
            return self.reference.project(self.hidden[torch.from_numpy(steps)])


def _force(reference: Transformer, decode: Decode, alignment: Alignment | None) -> _Forced:
    source = torch.tensor([decode.source])  # [1, S]
    source_lengths = torch.tensor([len(decode.source)])  # [1]
    target = torch.tensor([[reference.config.start_id, *decode.tokens[:-1]]])  # [1, T]
    layers = [alignment.layer] if alignment else []
    with torch.inference_mode(), recorded_attention(reference, layers) as attention:
        memory = reference.encode(source, source_lengths)
        hidden: Tensor = reference.decoder(target, memory, source_lengths)[0]  # [T, M]
        weights: Any = attention[0][0, list(alignment.heads)].mean(0).numpy() if alignment else None
    return _Forced(reference, hidden, weights)


def _rounding(
    forced: _Forced, decode: Decode, alignment: Alignment | None, steps: IntArray, dtype: torch.dtype
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return how far rounding may move the logits and the attention weights of some steps, and the logits' spread.

    All [t]; the spread is the standard deviation of a step's logits.
    """
    logits, attention, spread = np.zeros((3, len(steps)), np.float32)
    for seed in range(_ROUNDINGS):
        with RoundedInputs(dtype, seed):
            rounded = _force(forced.reference, decode, alignment)
        for block in _blocks(np.arange(len(steps))):
            expected = forced.project(steps[block])
            with RoundedInputs(dtype, seed):
                moved = rounded.project(steps[block]) - expected
            logits[block] = np.maximum(logits[block], moved.abs().amax(1).numpy())
            spread[block] = expected.std(1).numpy()
        if forced.attention is not None and rounded.attention is not None:
            attention = np.maximum(attention, _largest(rounded.attention[steps], forced.attention[steps]))
    # what is not finite excuses nothing
    finite = (np.nan_to_num(moved * _ROUNDING_FACTOR, posinf=0.0) for moved in (logits, attention))
    return *finite, spread


def _blocks(steps: IntArray) -> Iterator[IntArray]:
    for first in range(0, len(steps), _STEPS_AT_ONCE):
        yield steps[first : first + _STEPS_AT_ONCE]


def _compare_steps(
    decode: Decode, steps: IntArray, logits: Tensor, config: TransformerConfig
) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Return the `logits`, `shortfall` and `wrong` of some steps, for which PyTorch gives `logits` [t, V]."""
    suppressed = torch.tensor(config.suppressed_ids, dtype=torch.int64)
    allowed = logits.index_fill(1, suppressed, -torch.inf)  # [t, V]
    log_probs_of_all = (logits if config.suppressed_share else allowed).log_softmax(dim=1)
    expected, expected_log_probs = allowed.numpy(), log_probs_of_all.index_fill(1, suppressed, -torch.inf).numpy()
    actual = decode.logits.read([decode.steps[step] for step in steps])  # [t, V]
    ids = np.stack([decode.candidate_ids[step] for step in steps])  # [t, K]
    log_probs = np.stack([decode.candidate_log_probs[step] for step in steps])  # [t, K]
    known = np.clip(ids, 0, expected.shape[1] - 1)
    difference = np.maximum(
        _largest(actual, expected),
        _largest(log_probs, np.take_along_axis(expected_log_probs, known, axis=1)),
    )
    chosen = expected[np.arange(len(steps)), [decode.tokens[step] for step in steps]]
    wrong = (known != ids).any(axis=1) | ~_are_best(known, actual)
    return difference, expected.max(axis=1) - chosen, wrong


def _largest(actual: FloatArray, expected: FloatArray) -> FloatArray:
    """Return the largest difference in each row; what is -inf has to be -inf in both.

    A NaN anywhere makes the maximum NaN, and NaN passes no tolerance.
    """
    with np.errstate(invalid="ignore"):
        largest: FloatArray = np.where(actual == expected, 0.0, np.abs(actual - expected)).max(axis=1)
    return largest


def _are_best(ids: IntArray, logits: FloatArray) -> npt.NDArray[np.bool_]:
    """Return for each step whether `ids` [T, K] are different tokens with the K best of `logits` [T, V], in order."""
    best = -np.sort(-logits, axis=1)[:, : ids.shape[1]]
    in_order: npt.NDArray[np.bool_] = (np.take_along_axis(logits, ids, axis=1) == best).all(axis=1)
    return in_order & (np.diff(np.sort(ids, axis=1), axis=1) > 0).all(axis=1)


class RoundedInputs(TorchFunctionMode):
    """Changes each number that goes into an operation by about a unit in the last place of `dtype`, weights apart.

    It shows how far rounding alone moves what a model computes. Two programs that compute the same in another order
    round differently, and a model may make much of that or little: activations that are large inside a layer, or cancel
    each other, lose digits of everything after them. What comes out of a model whose every operation is changed at
    random, as in Monte Carlo arithmetic (Parker 1997), shows how exact any computation in that type can be.
    """

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self._unit = torch.finfo(dtype).eps
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(
        self,
        function: Callable[..., Any],
        _types: Any,
        arguments: tuple[Any, ...] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `function` with changed inputs."""
        if function.__name__ != "__get__":  # looking up a shape computes nothing
            arguments = tuple(self._change(argument) for argument in arguments)
        return function(*arguments, **(keywords or {}))

    def _change(self, argument: Any) -> Any:
        if not isinstance(argument, Tensor) or isinstance(argument, nn.Parameter) or not argument.is_floating_point():
            return argument
        return argument * (1 + self._unit * torch.randn(argument.shape, generator=self._generator))
