"""Brings a Transformer as notebooks write it: two `nn.Embedding`, a table of positions, `nn.Transformer`, `nn.Linear`.

docs/bring-your-own.md has such a model, and the lines that bring it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
import torch
from torch import Tensor, nn

from translane_export.core.checkpoint import is_replaceable, save_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import check_weight
from translane_export.model.config import Activation
from translane_export.model.layers import ACTIVATIONS
from translane_export.sources.placed_tensors import POSITIONS, SOURCE, TARGET, named, place_tensors, split_packed
from translane_export.sources.weight_files import stored_tensors
from translane_server.bundle.manifest import MOST_PIECES
from translane_server.core.terminal import printable, shown
from translane_server.text.vocabularies import is_of_tokenizers

_MODEL = Path("the notebook's model")  # what errors call it
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

    ``places`` [V], int64, are where words stand in the list that was given; -1 for a special word that is not there.
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

    A word's place in the list is its row in the model's tables. ``optional`` special words need not be there.

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
        ExportError: the parts do not fit each other, something in them is not supported, or the folder holds other
            files than a checkpoint.
    """
    if not is_replaceable(folder):
        raise ExportError(f"{folder}: it holds other files than a checkpoint, which are left alone")
    unused = {special_words.start: source_start, special_words.end: source_end}
    optional = [special_words.unk, *(word for word, used in unused.items() if not used)]
    sources = number_words(source_words, special_words, side="source", optional=optional)
    targets = number_words(target_words, special_words, side="target", optional=[special_words.unk])
    for name, embedding in (("source_embedding", source_embedding), ("target_embedding", target_embedding)):
        if embedding.max_norm is not None:
            raise ExportError(f"{name} has max_norm, which is not supported")
    fields = _module_fields(transformer)
    tables = [_position_table(each, fields["d_model"]) for each in (positions, target_positions) if each is not None]
    longest = min(map(len, tables))
    bias: Tensor | None = generator.bias
    if bias is None and bool((targets.places < 0).any()):
        bias = torch.zeros(len(target_words))  # a word that is not there needs one
    tensors = {
        **split_packed({f"transformer.{name}": _weight(each, name) for name, each in transformer.state_dict().items()}),
        "positions": tables[0][:longest],
        "target_positions": tables[-1][:longest],
        "source_embedding.weight": _rows(sources, source_embedding.weight, source_words, "source_embedding"),
        "target_embedding.weight": _rows(targets, target_embedding.weight, target_words, "target_embedding"),
        "generator.weight": _rows(targets, generator.weight, target_words, "generator"),
    }
    if bias is not None:
        tensors["generator.bias"] = _rows(targets, bias, target_words, "generator", missing=_NEVER)
    model = place_tensors(
        stored_tensors(tensors, _MODEL),
        {
            **fields,
            "biases": fields["biases"] or bias is not None,
            "source_vocab_size": len(sources.words),
            "target_vocab_size": len(targets.words),
            "positions": "learned",
            "max_positions": longest,
            "scale_embeddings": scale_embeddings,
            **{"pad_id": PAD, "unk_id": UNK, "bos_id": START, "eos_id": END},
        },
        _names(),
        path=_MODEL,
        unbiased=".*",
    )
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / f"{side}.json" for side in ("source", "target")]
        for file, words in zip(files, (sources.words, targets.words), strict=True):
            file.write_bytes(word_tokenizer(words, lowercase=lowercase, pattern=pattern))
        save_checkpoint(
            folder,
            config=model.config,
            state_dict=model.state_dict,
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


def _module_fields(transformer: nn.Transformer) -> dict[str, Any]:
    """What the modules of a `nn.Transformer` say of the fields of `TransformerConfig`.

    Raises:
        ExportError: a stack or layer is of a class of its own, layers differ, the activation is none that Translane
            has, or attention has ``add_zero_attn`` or ``add_bias_kv``.
    """
    found: list[tuple[Any, ...]] = []
    counts: dict[str, int] = {}
    for stack, kind in (("encoder", nn.TransformerEncoderLayer), ("decoder", nn.TransformerDecoderLayer)):
        layers: list[Any] = list(getattr(getattr(transformer, stack), "layers", ()))
        counts[f"{stack}_layers"] = len(layers)
        for number, layer in enumerate(layers):
            name = f"{stack}.layers.{number}"
            if type(layer) is not kind:
                own = type(layer).__name__
                raise ExportError(f"{name} is of the class {own}, and only an nn.{kind.__name__} is read")
            for part, module in layer.named_modules():
                if isinstance(module, nn.MultiheadAttention) and (module.add_zero_attn or module.bias_k is not None):
                    raise ExportError(f"{name}.{part} has add_zero_attn or add_bias_kv, which are not supported")
            sizes = layer.self_attn.embed_dim, layer.linear1.out_features, layer.self_attn.num_heads
            activation = _activation(layer.activation, name)
            found.append((*sizes, layer.norm_first, activation, layer.norm1.eps, layer.dropout1.p))
    if not all(counts.values()):
        raise ExportError("nn.Transformer: its encoder or decoder has no layers")
    if len(set(found)) > 1:
        raise ExportError("nn.Transformer: its layers differ in heads, norm_first, activation, epsilon or sizes")
    d_model, ffn_size, heads, norm_first, activation, epsilon, dropout = found[0]
    ends = [getattr(transformer, stack).norm is not None for stack in ("encoder", "decoder")]
    if ends[0] != ends[1]:
        raise ExportError("nn.Transformer: only one of encoder.norm and decoder.norm is there")
    return {
        **counts,
        "d_model": d_model,
        "heads": heads,
        "ffn_size": ffn_size,
        "activation": activation,
        "norm": "pre" if norm_first else "post",
        "final_norm": None if ends[0] == norm_first else ends[0],  # None: as the norm's place implies
        "layer_norm_eps": epsilon,
        "dropout": dropout,
        "biases": any(name.endswith("bias") and ".norm" not in name for name in transformer.state_dict()),
    }


def _activation(function: Callable[[Tensor], Tensor], layer: str) -> Activation:
    """The activation that gives the same numbers: it may be a function, a module or a lambda."""
    inputs = torch.linspace(-6, 6, 241)
    with torch.inference_mode():
        outputs = function(inputs.clone())
        for name, ours in ACTIVATIONS.items():
            if torch.allclose(outputs, ours(inputs), rtol=0, atol=1e-6):
                return name
    raise ExportError(f"{layer}: its activation is none of {', '.join(ACTIVATIONS)}")


def _names() -> dict[str, str]:
    """Our modules to those of a notebook; ``*`` is the number of a layer."""
    names = {
        SOURCE: "source_embedding.weight",
        TARGET: "target_embedding.weight",
        POSITIONS["encoder"]: "positions",
        POSITIONS["decoder"]: "target_positions",
        "output_projection": "generator",
    }
    for stack, attentions in (
        ("encoder", {"self_attention": "self_attn"}),
        ("decoder", {"self_attention": "self_attn", "cross_attention": "multihead_attn"}),
    ):
        layer = {"feed_forward.up_proj": "linear1", "feed_forward.down_proj": "linear2"}
        for number, sublayer in enumerate([*attentions, "feed_forward"], start=1):
            layer[f"{sublayer}_residual.norm"] = f"norm{number}"
        for attention, module in attentions.items():
            layer |= named(attention, module, {part: part for part in ("q_proj", "k_proj", "v_proj", "out_proj")})
        names |= named(f"{stack}.layers.*", f"transformer.{stack}.layers.*", layer)
        names[f"{stack}.final_norm"] = f"transformer.{stack}.norm"
    return names
