"""Brings a Transformer as notebooks write it: two `nn.Embedding`, a table of positions, `nn.Transformer`, `nn.Linear`.

docs/bring-your-own.md has such a model, and the lines that bring it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from translane_export.checkpoint import save_checkpoint
from translane_export.errors import ExportError
from translane_export.model import Transformer, TransformerConfig
from translane_export.sources.placed_tensors import POSITIONS, PROJECTION, SOURCE, TARGET
from translane_export.sources.torch_module_settings import module_fields
from translane_export.sources.torch_modules import transformer_weights, with_biases
from translane_export.sources.word_lists import (
    END,
    PAD,
    START,
    UNK,
    WORDS,
    NumberedWords,
    SpecialWords,
    number_words,
    word_tokenizer,
)
from translane_export.weights import as_linear, check_weight

_BIAS = "output_projection.bias"
_NEVER = -10_000.0  # the logit of a word that the model cannot generate: its probability is 0, also in float16


def bring(
    folder: Path,
    *,
    transformer: nn.Transformer,
    source_embedding: nn.Embedding,
    target_embedding: nn.Embedding,
    positions: Tensor,
    generator: nn.Linear,
    scale_embeddings: bool,
    source_words: Sequence[str],
    target_words: Sequence[str],
    languages: tuple[str, str],
    special_words: SpecialWords = SpecialWords(),  # noqa: B008 (frozen)
    target_positions: Tensor | None = None,
    lowercase: bool = False,
    pattern: str = WORDS,
    source_start: bool = True,
    source_end: bool = True,
    samples: Sequence[str] = (),
) -> None:
    """Write the checkpoint folder of a model that computes ``generator(transformer(source, target))``.

    ``source`` and ``target`` are rows of the embeddings, times √M if they are scaled, plus a position vector. Shapes: M
    model size, V words of a side, P positions.

    The rows of both vocabularies are put into an order in which the special words have the same ids on both sides.
    Every number stays what it was, so the model computes what it did.

    Args:
        folder: where to write; `translane export` reads it. An older checkpoint there is replaced.
        transformer: with ``norm_first`` or without, with biases or without.
        source_embedding: [V, M] of the source words.
        target_embedding: [V, M] of the target words.
        positions: the vectors that are added at the positions 0 to P - 1: [P, M], [P, 1, M] or [1, P, M].
        generator: from M to the target words, with a bias or without.
        scale_embeddings: whether the model multiplies embeddings by √M. No weight shows it.
        source_words: V words, each at the place of its row. Without a word for unknown words, their vector is zero.
        target_words: as ``source_words``. Without a word for unknown words, none is ever generated.
        languages: BCP-47 tags of source and target.
        special_words: how both lists spell them.
        target_positions: as ``positions``, where the target has a table of its own.
        lowercase: whether texts are made lower-case before they are split.
        pattern: a regular expression that finds the words of a text; without it words are what `str.split` finds.
        source_start: whether sources begin with the start word.
        source_end: whether sources end with the end word.
        samples: source sentences, for the exporter's comparison with PyTorch.

    Raises:
        ExportError: the parts do not fit each other, or something in them is not supported.
    """
    unused = {special_words.start: source_start, special_words.end: source_end}
    optional = [special_words.unk, *(word for word, used in unused.items() if not used)]
    sources = number_words(source_words, special_words, side="source", optional=optional)
    targets = number_words(target_words, special_words, side="target", optional=[special_words.unk])
    for name, embedding in (("source_embedding", source_embedding), ("target_embedding", target_embedding)):
        if embedding.max_norm is not None:
            raise ExportError(f"{name} has max_norm, which is not supported")
    fields = module_fields(transformer)
    tables = [_position_table(each, fields["d_model"]) for each in (positions, target_positions) if each is not None]
    state = transformer_weights({name: _weight(each, name) for name, each in transformer.state_dict().items()})
    state |= dict(zip(POSITIONS.values(), (tables[0], tables[-1]), strict=True))
    state |= {SOURCE: _rows(sources, source_embedding.weight, source_words, "source_embedding")}
    state |= _target_rows(targets, target_embedding, generator, target_words)
    tied = torch.equal(state[TARGET], state[PROJECTION])
    if tied:
        state[PROJECTION] = state[TARGET]
    try:
        config = TransformerConfig(
            **{**fields, "biases": fields["biases"] or _BIAS in state},
            source_vocab_size=len(sources.words),
            target_vocab_size=len(targets.words),
            positions="learned",
            max_positions=min(map(len, tables)),
            scale_embeddings=scale_embeddings,
            tie_embeddings="two-way" if tied else "none",
            pad_id=PAD,
            unk_id=UNK,
            bos_id=START,
            eos_id=END,
        )
    except ValueError as error:
        raise ExportError(f"the parts make no model: {error}") from None
    state |= {name: state[name][: config.max_positions] for name in POSITIONS.values()}
    state = with_biases(state, config)
    _check_shapes(state, config)
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / f"{side}.json" for side in ("source", "target")]
        for file, words in zip(files, (sources.words, targets.words), strict=True):
            file.write_bytes(word_tokenizer(words, lowercase=lowercase, pattern=pattern))
        save_checkpoint(
            folder,
            config=config,
            state_dict=state,
            source_tokenizer=files[0],
            target_tokenizer=files[1],
            tokenizer_kind="tokenizers",
            source_start=source_start,
            source_end=source_end,
            source_language=languages[0],
            target_language=languages[1],
            samples=tuple(samples),
            metadata={},
        )


def _weight(tensor: Tensor, name: str) -> Tensor:
    tensor = tensor.detach().cpu()
    check_weight(tensor, f"the tensor {name}")
    return tensor.float()


def _position_table(table: Tensor, d_model: int) -> Tensor:
    """[P, M], or the same with a dimension of 1 for the batch -> [P, M]."""
    table = _weight(table, "positions")
    batch = next((place for place in (0, 1) if table.ndim == 3 and table.shape[place] == 1), None)
    squeezed = table if batch is None else table.squeeze(batch)
    if squeezed.ndim != 2 or squeezed.shape[1] != d_model:
        raise ExportError(f"positions is {list(table.shape)}, and it should be [positions, {d_model}]")
    return squeezed


def _rows(numbered: NumberedWords, table: Tensor, words: Sequence[str], name: str, missing: float = 0.0) -> Tensor:
    """The rows of a table by id."""
    if len(table) != len(words):
        raise ExportError(f"{name} has {len(table)} rows, and its list has {len(words)} words")
    return numbered.reorder(_weight(table, name), missing)


def _target_rows(
    targets: NumberedWords, embedding: nn.Embedding, generator: nn.Linear, words: Sequence[str]
) -> dict[str, Tensor]:
    state = {
        TARGET: _rows(targets, embedding.weight, words, "target_embedding"),
        PROJECTION: _rows(targets, generator.weight, words, "generator"),
    }
    bias: Tensor | None = generator.bias
    if bias is None and bool((targets.places < 0).any()):
        bias = torch.zeros(len(words))  # an absent word needs one
    if bias is not None:
        state[_BIAS] = _rows(targets, bias, words, "generator", missing=_NEVER)
    return state


def _check_shapes(state: dict[str, Tensor], config: TransformerConfig) -> None:
    with torch.device("meta"):
        expected = Transformer(config).state_dict()
    for name, parameter in expected.items():
        if name not in state:
            raise ExportError(f"the parts make no model: nothing is its {name}")
        if as_linear(state[name], parameter.shape).shape != parameter.shape:
            raise ExportError(f"{name} is {list(state[name].shape)}, and it should be {list(parameter.shape)}")
    if left := sorted(state.keys() - expected.keys()):
        raise ExportError(f"{left[0]} has no place in the model")
