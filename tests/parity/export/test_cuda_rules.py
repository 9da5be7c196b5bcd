"""Exported graphs of every architecture keep the rules of `helpers.cuda_rules`, and graphs that are broken do not."""

import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from helpers.architectures import FOR_CUDA, ONE_LAYER, VARIANTS
from helpers.bundles import random_bundle
from helpers.cuda_bundles import CUDA_MODELS
from helpers.cuda_rules import OperatorTable, violations
from helpers.tiny_bundle import TINY

ROOT = Path(__file__).parents[3]
TABLE = OperatorTable.load()
GRAPHS = {"encoder", "decoder", "greedy", "alignment"}


def graphs_of(name):
    """The graphs of an exported model, by name."""
    bundle = CUDA_MODELS[name].bundle()
    named = {graph: getattr(bundle.manifest.graphs, graph) for graph in GRAPHS}
    return {graph: onnx.load(bundle.path(found.file)) for graph, found in named.items() if found}


def node_of(model, operator, place=0):
    return [node for node in model.graph.node if node.op_type == operator][place]


@pytest.mark.slow
@pytest.mark.parametrize("name", CUDA_MODELS)
def test_graphs_for_cuda_keep_every_rule(name):
    graphs = graphs_of(name)
    assert graphs.keys() == GRAPHS
    for graph, model in graphs.items():
        assert not violations(model, TABLE), graph


@pytest.mark.slow
@pytest.mark.parametrize("name", FOR_CUDA)
def test_graphs_of_the_attention_family_keep_every_rule(tmp_path, name):
    folder = random_bundle(tmp_path / "bundle", export={"precision": "fp16"}, **ONE_LAYER, **VARIANTS[name])
    for graph in GRAPHS:
        assert not violations(onnx.load(folder / f"{graph}.onnx", load_external_data=False), TABLE), graph


def without_present(graphs):
    """The encoder as it was when no bundle got past its warm-up."""
    node = node_of(graphs["encoder"], "GroupQueryAttention")
    del node.output[1:]
    return graphs["encoder"], node


def without_a_bias(graphs):
    """The encoder as it would attend to the padding on Turing to Ada."""
    node = node_of(graphs["encoder"], "GroupQueryAttention", 1)
    node.input[10] = ""
    return graphs["encoder"], node


def without_lengths(graphs):
    """The encoder of BART, which attends to its padding."""
    node = node_of(graphs["encoder"], "MultiHeadAttention")
    node.input[4] = ""
    return graphs["encoder"], node


def with_a_cast_count(graphs):
    """K is computed, from nothing that the rules forbid to compute with."""
    graph = graphs["greedy"].graph
    node = node_of(graphs["greedy"], "TopK")
    graph.node.insert(0, helper.make_node("Squeeze", [node.input[1]], ["squeezed"], name="squeeze"))
    node.input[1] = "squeezed"
    return graphs["greedy"], node


def with_a_counted_shape(graphs):
    node = helper.make_node("Unsqueeze", ["num_candidates"], ["of two dimensions"], name="computes")
    graphs["decoder"].graph.node.append(node)
    return graphs["decoder"], node


def with_a_type_that_has_no_kernel(graphs):
    """TopK of bfloat16, which is why the graphs search in float32."""
    graph = graphs["greedy"].graph
    node = node_of(graphs["greedy"], "TopK")
    graph.node.insert(
        0, helper.make_node("Cast", [graph.input[0].name], ["half"], to=TensorProto.BFLOAT16, name="cast")
    )
    node.input[0] = "half"
    return graphs["greedy"], node


BROKEN = {
    without_present: "caches",
    without_a_bias: "bias",
    without_lengths: "padding",
    with_a_cast_count: "counts",
    with_a_counted_shape: "computed counts",
    with_a_type_that_has_no_kernel: "operators",
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", BROKEN, ids=lambda damage: damage.__name__)
def test_a_broken_graph_is_found_by_its_own_rule_alone_which_names_the_node(damage):
    model, node = damage(graphs_of("BART" if damage is without_lengths else "T5"))
    found = violations(model, TABLE)
    assert found.keys() == {BROKEN[damage]}
    assert [sentence for sentence in found[BROKEN[damage]] if f"{node.op_type} {node.name}" in sentence]


def test_the_form_for_cpus_branches_and_that_is_found():
    found = violations(onnx.load(TINY / "decoder.onnx", load_external_data=False), TABLE)
    assert all(sentence.startswith("If ") and "condition" in sentence for sentence in found["branches"])


def test_the_table_was_made_by_the_onnxruntime_that_is_pinned():
    pins = (ROOT / "constraints-cuda.txt").read_text(encoding="utf-8")
    pinned = re.search(r"^onnxruntime-gpu==(\S+)$", pins, re.M)
    assert pinned is not None
    assert pinned[1] == TABLE.onnxruntime
