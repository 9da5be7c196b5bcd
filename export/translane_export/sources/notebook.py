"""Brings a Transformer as notebooks write it: two `nn.Embedding`, a table of positions, `nn.Transformer`, `nn.Linear`.

docs/bring-your-own.md has such a model, and the lines that bring it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

import tokenizers
import torch
from torch import Tensor, nn

from translane_export.checkpoint import save_checkpoint
from translane_export.errors import ExportError
from translane_export.model import Transformer, TransformerConfig
from translane_export.sources.placed_tensors import POSITIONS, PROJECTION, SOURCE, TARGET
from translane_export.sources.torch_modules import module_fields, transformer_weights, with_biases
from translane_export.weights import as_linear, check_weight
from translane_server.bundle.manifest import MOST_PIECES
from translane_server.core.terminal import printable, shown
from translane_server.text.json_tokenizer import is_of_tokenizers

_BIAS = "output_projection.bias"
_NEVER = -10_000.0  # the logit of a word that the model cannot generate: its probability is 0, also in float16
WORDS = r"[^\s\x1c-\x1f]+"
"""Finds the words that Python's `str.split` finds."""
PAD, UNK, START, END = range(4)
"""The ids of the special words in a checkpoint."""

_MOST_CHARACTERS = 1_000  # of the pattern


@dataclass(frozen=True, kw_only=True)
class SpecialWords:
    """How the lists spell the words for padding, for unknown words, and for the start and end of a sentence."""

    pad: str = "<pad>"
    unk: str = "<unk>"
    start: str = "<s>"
    end: str = "</s>"


class NumberedWords(NamedTuple):
    """The words of one side in the order of a checkpoint's ids: padding, unknown, start, end, and all the others.

    Attributes:
        words: V words.
        places: where each word stands in the list that was given [V], int64; -1 for a special word that is not there.
    """

    words: tuple[str, ...]
    places: Tensor

    def reorder(self, rows: Tensor, missing: float = 0.0) -> Tensor:
        """Return the list's ``rows`` [words of the list, ...] by id [V, ...]; those of absent words are ``missing``."""
        ordered = rows[self.places.clamp(min=0)]
        ordered[self.places < 0] = missing
        return ordered


def number_words(
    words: Sequence[str], special: SpecialWords, *, side: str, optional: Sequence[str] = ()
) -> NumberedWords:
    """Number a list of words so that the special words have the same ids on both sides.

    Args:
        words: the list; a word's place in it is its row in the model's tables.
        special: the special words.
        side: "source" or "target", for errors.
        optional: the special words that need not be in the list.

    Raises:
        ExportError: the list has a word twice, lacks a special word, or is too long.
    """
    if len(words) > MOST_PIECES:
        raise ExportError(f"{side}_words has {len(words):,} words, and at most {MOST_PIECES:,} are supported")
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        if not isinstance(word, str):
            raise ExportError(f"{side}_words: word {place} is {shown(word)}, and words are strings")
        if place != places.setdefault(word, place):
            raise ExportError(f"{side}_words: {shown(word)} is there twice, as words {places[word]} and {place}")
    first: tuple[str, ...] = astuple(special)
    if len(set(first)) < len(first):
        raise ExportError(f"special_words: {printable(', '.join(first), 200)} are not four different words")
    if missing := [word for word in first if word not in places and word not in optional]:
        raise ExportError(f"{side}_words: the special word {shown(missing[0])} is not there")
    ordered = (*first, *(word for word in words if word not in first))
    return NumberedWords(ordered, torch.tensor([places.get(word, -1) for word in ordered]))


def word_tokenizer(words: Sequence[str], *, lowercase: bool, pattern: str = WORDS) -> bytes:
    """Return the content of a tokenizer.json for words whose ids are their places.

    Texts are made lower-case, if they are to be; then every match of ``pattern`` is a word, and what lies between the
    matches is dropped. A word that is not in the list is unknown. The words of a translation are joined by spaces.

    Args:
        words: the words in the order of their ids; the one at `UNK` stands for unknown words.
        lowercase: whether texts are made lower-case.
        pattern: a regular expression of Oniguruma, https://github.com/kkos/oniguruma/blob/master/doc/RE.

    Raises:
        ExportError: the pattern is no regular expression.
    """
    if len(pattern) > _MOST_CHARACTERS:
        raise ExportError(f"pattern: it has {len(pattern):,} characters, and at most {_MOST_CHARACTERS:,} are allowed")
    try:
        found = tokenizers.Regex(pattern)
    except BaseException as error:
        if not is_of_tokenizers(error):
            raise
        raise ExportError(f"pattern: {shown(pattern)} is no regular expression: {printable(str(error), 200)}") from None
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=words[UNK]))
    if lowercase:
        tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(found, "removed", invert=True)
    return tokenizer.to_str().encode()


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
    special_words: SpecialWords = SpecialWords(),
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
