"""A bfloat16 graph is the float32 one that was verified but for its types, and anything else is noticed."""

import numpy as np
import onnx_ir as ir
import pytest

from translane_export.checks.same_graphs import check_same_graphs
from translane_export.errors import ExportError

FLOAT, BFLOAT16 = ir.DataType.FLOAT, ir.DataType.BFLOAT16


def value(name, dtype, shape=(2, 3)):
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def constant(name, numbers, dtype):
    array = np.asarray(numbers, np.float32).astype(dtype.numpy())
    made = value(name, dtype, array.shape)
    made.const_value = ir.tensor(array, name=name)
    return made


def save(path, dtype, change=lambda graph: None):
    """x · weight · 1/3, normalised, and cast to float32, as PyTorch's exporter writes it in a type."""
    x = value("x", dtype)
    weight = constant("weight", [0.5, -np.inf, 2.0], dtype)
    third = constant("third", 1 / 3, dtype)
    product = ir.node("Mul", [x, weight], outputs=[value("product", dtype)])
    scaled = ir.node("Mul", [product.outputs[0], third], outputs=[value("scaled", dtype)])
    normed = ir.node("Softmax", [scaled.outputs[0]], {"axis": -1}, outputs=[value("normed", dtype)])
    nodes, result = [product, scaled, normed], normed.outputs[0]
    if dtype == BFLOAT16:
        nodes.append(ir.node("Cast", [result], {"to": int(FLOAT)}, outputs=[value("result", FLOAT)]))
        result = nodes[-1].outputs[0]
    result.name = "result"
    graph = ir.Graph([x], [result], nodes=nodes, initializers=[weight, third], opset_imports={"": 21}, name="graph")
    change(graph)
    ir.save(ir.Model(graph, ir_version=10), path)
    return path


@pytest.fixture
def compare(tmp_path):
    def run(change=lambda graph: None):
        narrow = save(tmp_path / "narrow.onnx", BFLOAT16, change)
        check_same_graphs(narrow, save(tmp_path / "wide.onnx", FLOAT))

    return run


def test_types_alone_may_differ(compare):
    compare()


def node(graph, operator, number=0):
    return [node for node in graph if node.op_type == operator][number]


def another_operator(graph):
    node(graph, "Softmax").op_type = "LogSoftmax"


def another_domain(graph):
    node(graph, "Softmax").domain = "com.microsoft"


def another_attribute(graph):
    node(graph, "Softmax").attributes["axis"] = ir.AttrInt64("axis", 0)


def one_more_attribute(graph):
    node(graph, "Softmax").attributes["alpha"] = ir.AttrFloat32("alpha", 1.0)


def another_input(graph):
    node(graph, "Mul", 1).replace_input_with(0, graph.inputs[0])


def inputs_the_other_way_round(graph):
    first, second = node(graph, "Mul").inputs
    node(graph, "Mul").replace_input_with(0, second)
    node(graph, "Mul").replace_input_with(1, first)


def of_bfloat16(*values):
    return ir.tensor(np.array(values, np.float32).astype(BFLOAT16.numpy()))


def another_weight(graph):
    graph.initializers["weight"].const_value = of_bfloat16(0.5, -np.inf, 2.02)


def an_infinity_less(graph):
    graph.initializers["weight"].const_value = of_bfloat16(0.5, -3e38, 2.0)


def another_shape(graph):
    graph.initializers["third"].const_value = of_bfloat16(1 / 3)


def a_cast_to_an_integer(graph):
    cast = ir.node("Cast", [graph.inputs[0]], {"to": int(ir.DataType.INT64)})
    cast.outputs[0].name, cast.outputs[0].dtype = "cast", ir.DataType.INT64
    node(graph, "Mul").replace_input_with(0, cast.outputs[0])
    graph.insert_before(graph[0], cast)


def another_name_of_an_input(graph):
    graph.inputs[0].name = "y"


def one_more_output(graph):
    graph.outputs.append(node(graph, "Mul").outputs[0])


@pytest.mark.parametrize(
    "change",
    [
        another_operator,
        another_domain,
        another_attribute,
        one_more_attribute,
        another_input,
        inputs_the_other_way_round,
        another_weight,
        an_infinity_less,
        another_shape,
        a_cast_to_an_integer,
        another_name_of_an_input,
        one_more_output,
    ],
)
def test_any_other_difference_is_refused(compare, change):
    with pytest.raises(ExportError, match=r"the bfloat16 graph narrow\.onnx is not the one that was verified: "):
        compare(change)


def test_the_node_is_named(compare):
    with pytest.raises(ExportError, match="the LogSoftmax of normed is Softmax elsewhere"):
        compare(another_operator)
