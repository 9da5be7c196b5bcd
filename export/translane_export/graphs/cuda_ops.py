"""The operators of a graph's CUDA form: what `onnx_ops` computes, in fewer kernels and none that the host waits for.

On a GPU every node is a launch, and a number that the host needs in the middle of a graph is a wait. Each function
emits nodes that have a kernel for float16 and bfloat16 on CUDA, and one on the CPU, where an export is verified. They
are captured, and never run in PyTorch. Shapes as in `onnx_ops`.

`join_nodes` joins nodes of a captured graph: a residual's addition to the norm after it, and a projection's bias to
what comes after the projection.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn

from translane_export.graphs import candidates
from translane_export.graphs.onnx_nodes import HeadForm, emit, emit_all, group_query_attention, multiply, scalar
from translane_export.model.attention import normalize_scores
from translane_export.model.fast_attention import for_each_head


def self_attention(packed: nn.Linear, x: Tensor, lengths: Tensor, form: HeadForm, bias: Tensor | None = None) -> Tensor:
    """Project to queries, keys and values, and let every position of row b see the first ``lengths[b]`` ones.

    x [B, T, M], ``packed`` to (H + 2·G)·D, lengths [B], bias of the scores [B or 1, H or 1, T, T] -> [B, T, H·D].
    MultiHeadAttention takes lengths as they are, and adds the projection's bias. It takes no bias of the scores that
    all rows share, and is the paper's attention alone. Otherwise the node is GroupQueryAttention, which must name its
    key and value outputs on CUDA, and sees the padding unless it has a bias.
    """
    rows, size, _ = x.shape
    flat = x.flatten(0, 1)
    if bias is None and form.is_plain:
        attributes: dict[str, Any] = {"num_heads": form.heads}
        if form.unusual_scale is not None:
            attributes["scale"] = form.unusual_scale
        qkv = multiply(flat, packed.weight).view(rows, size, packed.out_features)
        shape = (rows, size, form.width)  # of queries, keys, values and the context alike
        queries_keys_values = emit_all("Split", (qkv,), [x.dtype] * 3, [shape] * 3, {"axis": -1, "num_outputs": 3})
        inputs = (*queries_keys_values, packed.bias, lengths)
        return emit("com.microsoft::MultiHeadAttention", inputs, x.dtype, shape, attributes)
    qkv = packed(flat).view(rows, size, packed.out_features)
    return grouped_self_attention(qkv, lengths, form, bias)


def grouped_self_attention(qkv: Tensor, lengths: Tensor, form: HeadForm, bias: Tensor | None) -> Tensor:
    """Do the same from what is projected already, qkv [B, T, (H + 2·G)·D], by GroupQueryAttention."""
    rows, size, _ = qkv.shape
    if bias is None:
        bias = torch.zeros((1, 1, size, size), dtype=qkv.dtype)
    kept = (rows, form.kv_heads, size, form.size)
    inputs = (qkv, None, None, None, None, lengths - 1, scalar(size))
    shapes = [(rows, size, form.width), kept, kept]
    context, _, _ = group_query_attention(inputs, form, shapes, qkv.dtype, bias=bias, causal=False)
    return context


def weights_of_sentence(qkv: Tensor, lengths: Tensor, form: HeadForm, bias: Tensor | None) -> Tensor:
    """Return the weights of `self_attention`, which its operators do not give: qkv [B, T, (H + 2·G)·D] -> [B, H, T, T].

    Weights of the keys from a row's length on are zero. The heads are not turned by rotary positions.
    """
    rows, size, _ = qkv.shape
    queries = qkv[..., : form.width].view(rows, size, form.heads, form.size).transpose(1, 2)
    keys = qkv[..., form.width : form.width + form.kv_heads * form.size]
    keys = keys.reshape(rows, size, form.kv_heads, form.size).transpose(1, 2)
    return _weights(queries, keys, lengths, form, bias)


def weights_of_step(query: Tensor, keys: Tensor, lengths: Tensor, form: HeadForm, bias: Tensor | None) -> Tensor:
    """Return the weights of a step, which GroupQueryAttention does not give on CUDA.

    query [B, H·D], keys [B, G, C, D], lengths [B] -> [B, H, C], zero from a row's length on. The heads are not turned
    by rotary positions.
    """
    query = query.view(-1, form.heads, 1, form.size)
    return _weights(query, keys, lengths, form, bias).squeeze(2)


def best_id(logits: Tensor) -> Tensor:
    """Return the id of each row's highest logit, of equal ones the lowest id: [B, V] -> [B, 1].

    The best of each block, and of these the best: two searches, where one through all of the vocabulary takes longer.
    """
    one = torch.tensor([1])
    if logits.dtype == torch.bfloat16:
        logits = logits.float()  # TopK has no kernel for bfloat16
    rows, vocabulary = logits.shape
    blocks = candidates.vocabulary_blocks(vocabulary)
    if blocks is None:
        return candidates.top_k(logits, one, 1)[1]
    size = vocabulary // blocks
    values, places = candidates.top_k(logits.view(rows, blocks, size), one, 1)  # [B, blocks, 1] each
    ids = places.squeeze(2) + torch.arange(blocks) * size  # [B, blocks]
    return ids.gather(1, candidates.top_k(values.squeeze(2), one, 1)[1])


def best_ids(logits: Tensor, count: Tensor, num_blocks: Tensor | None) -> Tensor:
    """Return what `candidates.best_ids` does, [B, V] -> [B, K].

    ``num_blocks`` [1] is the lesser of ``count`` and the number of blocks, where there are blocks.
    """
    if num_blocks is None:
        return candidates.best_ids(logits, count)
    vocabulary = logits.shape[1]
    blocks = candidates.vocabulary_blocks(vocabulary)
    assert blocks is not None
    chosen, found = candidates.best_blocks(logits, num_blocks, blocks)  # [B, K'], [B, K' * size]
    ids = nn.functional.embedding(chosen, torch.arange(vocabulary).view(blocks, -1))  # [B, K', size]
    ids = emit("Reshape", (ids, torch.tensor([0, -1])), ids.dtype, found.shape)
    return ids.gather(1, candidates.top_k(found, count)[1])


def attention_weights(query: Tensor, keys: Tensor, lengths: Tensor, form: HeadForm) -> Tensor:
    """Return the weights of a query over the first ``lengths[b]`` keys, and zero for the others.

    query [B, H, D], keys [B, G, C, D], lengths [B] -> [B, H, C], float32. All C keys take part, so that no shape
    depends on what the lengths are.
    """
    return _weights(query.unsqueeze(2), keys, lengths, form, None, exact=True).squeeze(2)


def _weights(
    queries: Tensor,
    keys: Tensor,
    lengths: Tensor,
    form: HeadForm,
    bias: Tensor | None,
    *,
    exact: bool = False,
) -> Tensor:
    """Return the weights of queries [B, H, T, D] over the first ``lengths[b]`` of keys [B, G, C, D]: [B, H, T, C].

    They have the type of the queries, or are float32 if ``exact``.
    """
    keys = for_each_head(keys, form.sharing)
    capacity = keys.shape[2]
    shape, scaled = (*queries.shape[:3], capacity), {"transB": 1, "alpha": form.scale}
    scores = emit("com.microsoft::FusedMatMul", (queries, keys), keys.dtype, shape, scaled)
    if bias is not None:
        scores = scores + bias
    scores = scores.float()
    visible = torch.arange(capacity, dtype=torch.int32)[None, :] < lengths[:, None]  # [B, C]
    lowest = torch.tensor(torch.finfo(torch.float32).min)  # whose exponential is 0 beside any other
    scores = torch.where(visible[:, None, None], scores, lowest)
    weights = normalize_scores(scores, one_in_denominator=form.one_in_denominator)
    return weights if exact else weights.to(queries.dtype)


_NORMS = {
    "LayerNormalization": "SkipLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}
_GELUS = {"Gelu": "BiasGelu", "FastGelu": "FastGelu"}
_DOMAIN = "com.microsoft"
_TOTAL = 3  # output of the joined norms: the sum that is normalised


def join_nodes(graph: ir.Graph) -> None:
    """Join what can be joined, in place."""
    for node in list(graph):
        if node.op_type in _NORMS:
            _join_addition(graph, node)
        elif node.op_type in _GELUS and (bias := _take_bias(node.inputs[0])):
            joined = ir.node(_GELUS[node.op_type], [node.inputs[0], *bias], domain=_DOMAIN)
            _replace(graph, [node], joined, {node.outputs[0]: joined.outputs[0]})


def _join_addition(graph: ir.Graph, norm: ir.Node) -> None:
    """Join norm(x + sublayer(x)). What is added to embeddings has another shape, and stays."""
    total, *parameters = norm.inputs
    addition = total.producer() if total is not None else None
    if total is None or addition is None or addition.op_type != "Add":
        return
    output, residual = addition.inputs
    assert output is not None
    sublayer = output.producer()
    if sublayer is None or sublayer.op_type not in ("Gemm", "Relu"):  # a recurrent unit ends in the latter
        return
    inputs = [output, residual, *parameters, *_take_bias(output)]
    epsilon = {"epsilon": norm.attributes.get_float("epsilon")}
    joined = ir.node(_NORMS[norm.op_type], inputs, epsilon, domain=_DOMAIN, num_outputs=_TOTAL + 1)
    _replace(graph, [norm, addition], joined, {norm.outputs[0]: joined.outputs[0], total: joined.outputs[_TOTAL]})


def _take_bias(value: ir.Value | None) -> list[ir.Value]:
    """Take the bias off the projection that gives a value, where it has one; return it."""
    projection = value.producer() if value is not None else None
    if projection is None or projection.op_type != "Gemm" or len(projection.inputs) < 3:
        return []
    bias = projection.inputs[2]
    projection.resize_inputs(2)
    for default in ("alpha", "beta", "transA"):
        projection.attributes.pop(default, None)
    return [] if bias is None else [bias]


def _replace(graph: ir.Graph, nodes: list[ir.Node], joined: ir.Node, outputs: dict[ir.Value, ir.Value]) -> None:
    graph.insert_before(nodes[0], joined)
    for old, new in outputs.items():
        name, new.type, new.shape = old.name, old.type, old.shape
        ir.convenience.replace_all_uses_with(old, new)
        old.name, new.name = None, name
    graph.remove(nodes, safe=True)
