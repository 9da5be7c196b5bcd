"""Tensors that no weight is are refused by what they are, before anything looks at their numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from translane_export.errors import ExportError
from translane_export.weights import check_weight

ONES = torch.ones(4, 6)
OTHERS: dict[str, Callable[[], Any]] = {
    "empty (on the device meta)": lambda: ONES.to("meta"),
    "sparse (sparse_coo)": ONES.to_sparse,
    "quantized (qint8)": lambda: torch.quantize_per_tensor(ONES, 0.1, 0, torch.qint8),
    "complex64": lambda: ONES.to(torch.complex64),
    "bool": lambda: ONES > 0,
    "float8_e4m3fn": lambda: ONES.to(torch.float8_e4m3fn),
    "int64": ONES.long,
    "[1000000, 1000000] by repeating fewer numbers": lambda: torch.ones(1).expand(10**6, 10**6),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", OTHERS)
def test_a_tensor_that_is_no_weight(kind):
    with pytest.raises(ExportError) as caught:
        check_weight(OTHERS[kind](), "model.bin: the tensor a")
    assert str(caught.value) == (
        f"model.bin: the tensor a is {kind}, and weights are dense tensors of float32, float16, bfloat16 or float64"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_weights(dtype):
    weight = ONES.to(dtype)
    for tensor in (weight, weight[1:, :3], weight.T, torch.nn.Parameter(weight), weight[:0]):
        check_weight(tensor, "")
