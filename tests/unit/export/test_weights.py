"""Tensors that no weight is are refused by what they are, before anything looks at their numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_export.model import Transformer, TransformerConfig
from translane_export.tokenizer_files import TokenizerFiles
from translane_export.torch_model import build_model
from translane_export.weights import as_linear, check_weight
from translane_server.bundle.manifest import JsonTokenizerEntry, Languages

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


def test_a_convolution_of_kernel_size_1_is_a_linear_layer():
    convolution, linear = torch.nn.Conv1d(6, 4, 1), torch.nn.Linear(6, 4)
    with torch.no_grad():
        linear.weight.copy_(as_linear(convolution.weight, linear.weight.shape))
        assert convolution.bias is not None
        linear.bias.copy_(convolution.bias)
        x = torch.randn(2, 5, 6)
        torch.testing.assert_close(linear(x), convolution(x.transpose(1, 2)).transpose(1, 2))
    assert as_linear(convolution.weight, linear.weight.shape).data_ptr() == convolution.weight.data_ptr()


CONFIG = TransformerConfig(
    source_vocab_size=8, target_vocab_size=8, d_model=16, heads=2, ffn_size=24, encoder_layers=1, decoder_layers=1,
    max_positions=8,
)  # fmt: skip
IDS = torch.tensor([[4, 5, 6, 3]])


def logits(state):
    checkpoint = Checkpoint(
        config=CONFIG, state_dict=state, tokenizer=TokenizerFiles(JsonTokenizerEntry(file=""), {}),
        languages=Languages(source=("de",), target=("en",)), samples=(), metadata={},
    )  # fmt: skip
    with torch.inference_mode():
        return build_model(checkpoint)(IDS, torch.tensor([4]), IDS)


def test_a_checkpoint_of_convolutions_is_that_of_linear_layers():
    state = Transformer(CONFIG).state_dict()
    convolutions = {
        name: tensor[..., None] if tensor.ndim == 2 and ("_proj." in name or name.startswith("output")) else tensor
        for name, tensor in state.items()
    }
    assert sum(tensor.ndim == 3 for tensor in convolutions.values()) == 17
    assert torch.equal(logits(convolutions), logits(state))


@pytest.mark.parametrize("shape", [(16, 16, 2), (16, 1, 16), (1, 16, 16), (16, 16, 1, 1), (8, 16, 1)])
def test_other_convolutions_do_not_fit(shape):
    name = "encoder.layers.0.self_attention.q_proj.weight"
    with pytest.raises(ExportError, match=f"do not fit its configuration: size mismatch for {name}"):
        logits({**Transformer(CONFIG).state_dict(), name: torch.ones(shape)})
