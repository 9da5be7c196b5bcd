"""What PyTorch makes of a translated sentence: attention of every layer, tensors on a token's way, and positions.

The model runs as it always does, and hooks see what its modules make. The graphs do the same; they keep the keys and
values of earlier tokens in a cache, where PyTorch computes them again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from translane_export.checks.activations import watched
from translane_export.core.errors import ExportError
from translane_export.explain.translation import Translated
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.attention import MultiHeadAttention
from translane_export.model.masks import View
from translane_export.model.transformer import Decoder, Encoder, Stack
from translane_server.bundle.manifest import Architecture
from translane_server.core.arrays import FloatArray

MOST_WEIGHTS = 8_000_000
"""Most attention weights of a sentence. A page holds 2.7 bytes for each."""

SYMBOLS = {
    "B": "sentences, here 1",
    "S": "source tokens",
    "T": "target tokens so far",
    "H": "heads",
    "D": "size of a head's queries and keys",
    "G": "heads of keys and values",
    "E": "size of a head's values",
    "M": "model size",
    "F": "feed-forward size",
    "V": "target vocabulary",
}


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of one kind of attention, [layers, H, T, S]: ``rows`` look [T], and ``columns`` are looked at [S].

    A softmax makes every row of S sum to 1, and softmax₁ to less.
    """

    title: str
    row_kind: str
    column_kind: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: FloatArray


@dataclass(frozen=True)
class Attention:
    """The three kinds of attention, and the natural log-probability of each chosen token as PyTorch has it, [T].

    A decoder with a recurrent unit has no self-attention to show.
    """

    kinds: tuple[AttentionWeights, ...]
    log_probs: tuple[float, ...]


def check_size(sizes: Architecture, sources: int, steps: int) -> None:
    """Refuse a sentence of so many tokens with too many attention weights to show."""
    weights = sizes.heads * (sizes.encoder_layers * sources**2 + sizes.decoder_layers * (steps**2 + steps * sources))
    if weights > MOST_WEIGHTS:
        raise ExportError(
            f"the sentence has {weights:,} attention weights ({sources} source and {steps} target tokens in every layer"
            f" and head), and at most {MOST_WEIGHTS:,} are shown; give a shorter text, or a lower --max-length"
        )


@torch.inference_mode()
def record_translation(model: Transformer, translated: Translated) -> Attention:
    """Run `model` once over the sentence and its whole translation, and return the weights of every attention."""
    recorded: dict[str, list[Tensor]] = defaultdict(list)  # [1, H, T, S] of each layer

    def record(name: str, module: nn.Module, given: tuple[Any, ...], _output: object) -> None:
        if isinstance(module, MultiHeadAttention):
            stack, *_, attention = name.split(".")
            recorded[f"{stack} {attention}"].append(module.weights(*given))

    source = translated.source
    with watched(model, record):
        logits = _run(model, source.ids, translated.fed_ids)  # [1, T, V]
    log_probs = logits[0].log_softmax(-1).gather(1, torch.tensor(translated.chosen_ids)[:, None])[:, 0]
    chosen, pieces, step = translated.chosen_pieces, source.pieces, "token that the step chooses"
    seen, seen_target = "source piece that is looked at", "target piece that is looked at"

    def weights(kind: str) -> FloatArray:
        stacked: FloatArray = torch.cat(recorded[kind]).numpy()
        return stacked

    kinds = [
        AttentionWeights("Cross-attention", step, seen, chosen, pieces, weights("decoder cross_attention")),
        AttentionWeights(
            "Encoder self-attention", "source piece", seen, pieces, pieces, weights("encoder self_attention")
        ),
    ]
    if model.config.decoder_unit == "self-attention":
        of_decoder = weights("decoder self_attention")
        kinds.append(
            AttentionWeights("Decoder self-attention", step, seen_target, chosen, translated.fed_pieces, of_decoder)
        )
    return Attention(tuple(kinds), tuple(log_probs.tolist()))


@dataclass(frozen=True)
class TensorStep:
    """A tensor on the way.

    ``part`` is a stack, or a layer such as "decoder layer 0". ``module`` makes the tensor; it is "" if no module does.
    ``symbols`` are the shape in letters: see `SYMBOLS`.
    """

    part: str
    tensor: str
    module: str
    symbols: tuple[str, ...]
    shape: tuple[int, ...]
    what: str
    formula: str

    @property
    def shape_text(self) -> str:
        """The shape in letters and numbers: "[B, 1, M] = [1, 1, 256]"."""
        return f"[{', '.join(self.symbols)}] = [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TokenWay:
    """The tensors, and the probability of each target token at the end, [V]. Of layers, the first stands for all."""

    steps: tuple[TensorStep, ...]
    probabilities: Tensor


class _Row(NamedTuple):
    """What is said of a tensor. In its `symbols`, Q are the tokens on their way, and K those that they look at."""

    name: str
    symbols: str
    what: str
    formula: str


@torch.inference_mode()
def follow_token(model: Transformer, source_ids: Sequence[int], fed_ids: Sequence[int]) -> TokenWay:
    """Follow the last of `fed_ids` [T], over the sentence `source_ids` [S], to the probabilities of the next token."""
    config = model.config
    numbers = {
        "B": 1,
        "S": len(source_ids),
        "T": len(fed_ids),
        "H": config.heads,
        "D": config.head_dim,
        "G": config.key_value_heads,
        "E": config.value_dim,
        "M": config.d_model,
        "F": config.ffn_size,
        "V": config.target_vocab_size,
        "1": 1,
    }
    same = {
        "G": "H" if config.key_value_heads == config.heads else "G",
        "E": "D" if config.value_dim == config.head_dim else "E",
    }
    rows = _rows_of_modules(config)
    steps: list[TensorStep] = []

    def note(module: str, tensor: Tensor, row: _Row) -> None:
        of_encoder = module.startswith("encoder")
        keys = "S" if of_encoder or "cross_attention" in module else "T"
        letters = {"Q": "S" if of_encoder else "1", "K": keys, **same}
        if not of_encoder and "Q" in row.symbols:  # the decoder's last token is on its way
            axis = row.symbols.split().index("Q")
            tensor = tensor.narrow(axis, tensor.shape[axis] - 1, 1)
        symbols = tuple(letters.get(each, each) for each in row.symbols.split())
        shape = tuple(tensor.shape)
        assert shape == tuple(numbers[letter] for letter in symbols), (module, shape, symbols)
        steps.append(TensorStep(_part(module), row.name, module, symbols, shape, row.what, row.formula))

    def see(name: str, module: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        if ".layers." in name and ".layers.0." not in name:
            return
        if isinstance(module, MultiHeadAttention):
            for tensor, row in _tensors_of_attention(name, module, given, output):
                note(name, tensor, row)
        elif not isinstance(module, nn.Identity):
            for ending in (ending for ending in rows if name.endswith(ending)):
                note(name, output, rows[ending])

    with watched(model, see):
        probabilities = _run(model, source_ids, fed_ids).softmax(-1)
    note("", probabilities, _Row("probabilities", "B Q V", "The softmax makes them sum to 1.", "softmax(logits)"))
    return TokenWay(tuple(steps), probabilities[0, -1])


def _run(model: Transformer, source_ids: Sequence[int], fed_ids: Sequence[int]) -> Tensor:
    """Return the logits of each step, [1, T, V]."""
    ids, lengths = torch.tensor([source_ids]), torch.tensor([len(source_ids)])
    return model.decode(torch.tensor([fed_ids]), model.encode(ids, lengths), lengths)


def _part(module: str) -> str:
    stack, _, rest = module.partition(".")
    if not rest:
        return "output"
    if rest.startswith("layers."):
        return f"{stack} layer {rest.split('.')[1]}"
    return f"{stack} input" if rest.startswith("embedding") else f"{stack} output"


def _rows_of_modules(config: TransformerConfig) -> Mapping[str, _Row]:
    """What is said of a module's output, by the end of the module's name."""
    b = " + b" if config.biases else ""
    pre = config.norm == "pre"
    scale = "" if config.logit_scale == 1 else f"{config.logit_scale:.4g} · "
    act = _Row("feed-forward: activation", "B Q F", "Numbers below 0 are damped.", f"act(x W₁{b})")
    if config.gated:
        act = act._replace(what="One gates the other.", formula="act(gate) · up")
    rows = {
        "embedding.tokens": _Row(
            "embedding",
            "B Q M",
            "Each id selects its vector of the table.",
            "E[ids] · √M" if config.scale_embeddings else "E[ids]",
        ),
        "embedding.positions": _Row("positions", "Q M", "Each position has a vector, which is added.", "P"),
        "embedding.norm": _Row("norm", "B Q M", "The sum is normalised.", "norm(x)"),
        "_residual.norm": _Row(
            "norm", "B Q M", "Every token gets one scale.", "norm(x)" if pre else "norm(x + output)"
        ),
        "ssru.forget_proj": _Row("recurrent unit: gate", "B Q M", "How much of the cell stays.", f"F = x W_f{b}"),
        "ssru.cell_proj": _Row("recurrent unit: input", "B Q M", "What the token adds to the cell.", "x W"),
        ".ssru": _Row(
            "recurrent unit: output", "B Q M", "The cell of all tokens so far.", "ReLU(σ(F) c + (1 - σ(F)) x W)"
        ),
        "feed_forward.up_proj": _Row("feed-forward: up", "B Q F", "Each token by itself becomes wider.", f"x W₁{b}"),
        "feed_forward.gate_proj": _Row("feed-forward: gate", "B Q F", "The same once more.", f"x W_gate{b}"),
        "feed_forward.dropout": act,
        "feed_forward.down_proj": _Row("feed-forward: output", "B Q M", "Back to the model size.", f"h W₂{b}"),
        "final_norm": _Row("final norm", "B Q M", "The sums of all layers are normalised.", "norm(x)"),
        "output_projection": _Row("logits", "B Q V", "A number for each piece of the vocabulary.", f"{scale}x W{b}"),
    }
    if pre:  # else the norm's output is the residual's
        rows["_residual"] = _Row("sum", "B Q M", "What came in is added.", "x + output")
    return rows


def _tensors_of_attention(
    name: str, attention: MultiHeadAttention, given: tuple[Any, ...], output: Tensor
) -> Iterator[tuple[Tensor, _Row]]:
    """Yield the tensors that an attention makes of what it is given, as its `forward` does."""
    x, memory, view = given
    formula, seen = attention.formula, view.whole
    kind = name.rpartition(".")[2].replace("_", "-")
    queries, (keys, values) = attention.project_queries(x), attention.project_keys_values(memory)
    scores, weights = formula.scores(queries, keys, seen), formula.weights(queries, keys, seen)
    softmax, total = ("softmax₁", "less than 1") if attention.one_in_denominator else ("softmax", "1")

    def projected(letter: str, source: str) -> str:
        return f"{source} W_{letter}" + (f" + b_{letter}" if attention.q_proj.bias is not None else "")

    def turned(vectors: str) -> str:
        return vectors if attention.rotary is None else f"turned by position: {vectors}"

    def row(what: str, symbols: str, sentence: str, formula: str) -> _Row:
        return _Row(f"{kind}: {what}", symbols, sentence, formula)

    yield queries, row("queries", "B H Q D", "What each head looks for.", turned(f"Q = {projected('Q', 'x')}"))
    yield keys, row("keys", "B G K D", "What tokens can be found by.", turned(f"K = {projected('K', 'm')}"))
    yield values, row("values", "B G K E", "What tokens have to give.", f"V = {projected('V', 'm')}")
    yield scores, row("scores", "B H Q K", "How well queries and keys match.", _score(attention, view.has_biases))
    yield weights, row("weights", "B H Q K", f"Scores as shares that sum to {total}.", f"{softmax}(scores)")
    context = "weights V" if attention.relative is None else "weights (V + r_v)"
    mixed = formula.context(weights, values, seen)
    yield mixed, row("context", "B H Q E", "The values, averaged by the weights.", context)
    yield output, row("output", "B Q M", "All heads together, projected.", projected("O", "concat(heads)"))


def _score(attention: MultiHeadAttention, biased: bool) -> str:
    """Return the formula of an attention's scores."""
    product = "QKᵀ" if attention.relative is None else "(QKᵀ + Q r_kᵀ)"
    if math.isclose(attention.scale, attention.head_size**-0.5):
        product += " / √D"
    elif attention.scale != 1:
        product += f" · {attention.scale:.4g}"
    return product + (" + bias" if biased else "")


_DISTANCE = "place of the key less that of the query"
_MOST_POSITIONS = 128
_FURTHEST = 128  # tokens


@dataclass(frozen=True)
class PositionTable:
    """Numbers by position or distance, [rows, columns]; ``first_column`` is below 0 where distances begin there."""

    title: str
    rows: str
    columns: str
    first_column: int
    values: FloatArray


@torch.inference_mode()
def position_tables(model: Transformer) -> tuple[PositionTable, ...]:
    """Return the tables of the model: vectors or angles by position, vectors or biases by distance; or none.

    At most 128 positions, and distances of at most 128 tokens, are looked at.
    """
    config = model.config
    stacks: dict[str, Encoder | Decoder] = {"encoder": model.encoder, "decoder": model.decoder}
    tables: list[PositionTable] = []
    for name, stack in stacks.items():
        positions = stack.embedding.positions
        if positions is not None and not (tables and config.positions == "sinusoidal"):
            count = min(config.max_positions, _MOST_POSITIONS)
            values = positions(count)
            title = "sinusoids, both stacks" if config.positions == "sinusoidal" else f"learned positions, {name}"
            tables.append(PositionTable(title, "position", "dimension", 0, values.numpy()))
    for name, stack in stacks.items():
        if stack.biases:
            tables.append(_biases(name, stack))
    if config.decoder_unit != "self-attention":
        return tuple(tables)
    attention = model.decoder.layers[0].get_submodule("self_attention")
    assert isinstance(attention, MultiHeadAttention)
    if attention.rotary is not None:
        turned = attention.rotary.cosines[:_MOST_POSITIONS]
        tables.append(PositionTable("cosines of rotary positions", "position", "pair", 0, turned.numpy()))
    if attention.relative is not None:
        vectors = attention.relative.keys[0].T  # [D, 2 * window + 1], of the first head or of all
        title = "vectors of distances for keys, decoder layer 0"
        tables.append(
            PositionTable(title, "dimension", _DISTANCE, -attention.relative.window, vectors.detach().numpy())
        )
    return tuple(tables)


def _biases(name: str, stack: Stack) -> PositionTable:
    """Return the bias of each head [H] for the distances from query to key, below 0 where the key comes first."""
    learned = stack.relative_positions
    furthest = _FURTHEST if learned is None else min(learned.furthest, _FURTHEST)
    ahead = furthest if isinstance(stack, Encoder) else 0
    view = View(furthest + 1, furthest + ahead + 1, biases=stack.biases, device=torch.device("cpu"))
    bias = view.block(furthest, furthest + 1).bias  # [1, H, 1, distances]
    assert bias is not None
    return PositionTable(f"bias on self-attention, {name}", "head", _DISTANCE, -furthest, bias[0, :, 0].numpy())
