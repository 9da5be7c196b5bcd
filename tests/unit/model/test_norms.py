"""Norms: batch norm over the real positions alone, RMS norm's formula, and where a config puts them."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from translane_export.model import Transformer
from translane_export.model.norms import BatchNorm

B, T, M = 3, 5, 4
LENGTHS = torch.tensor([5, 2, 1])
REAL = torch.arange(T) < LENGTHS[:, None]  # [B, T]
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture
def pair():
    """Our norm and PyTorch's, with the same random weights and statistics."""
    ours, theirs = BatchNorm(M, eps=1e-3).double(), nn.BatchNorm1d(M, eps=1e-3).double()
    with torch.no_grad():
        for tensor in (*ours.parameters(), ours.running_mean):
            tensor.normal_()
        ours.running_var.uniform_(0.5, 2)
        theirs.load_state_dict(ours.state_dict(), strict=False)
    return ours, theirs


def given() -> Tensor:
    return (torch.randn(B, T, M, dtype=torch.float64) * 3 + 1).requires_grad_()


@pytest.mark.parametrize("real", [REAL, None], ids=["padded", "all"])
def test_batch_norm_in_training_is_pytorch_s_over_the_real_positions(pair, real):
    ours, theirs = pair
    where = torch.ones(B, T, dtype=torch.bool) if real is None else real
    for _ in range(3):  # running statistics are of several batches
        x = given()
        output, expected = ours(x, real)[where], theirs(x[where])
        torch.testing.assert_close(output, expected, **EXACT)
        up = torch.randn_like(expected)
        gradients = torch.autograd.grad(output, (x, ours.weight, ours.bias), up)
        expected_gradients = torch.autograd.grad(expected, (x, theirs.weight, theirs.bias), up)
        for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(ours.running_mean, theirs.running_mean, **EXACT)
        torch.testing.assert_close(ours.running_var, theirs.running_var, **EXACT)


def test_batch_norm_of_bfloat16_has_statistics_in_float32():
    ours, exact, x = BatchNorm(M), BatchNorm(M).double(), given().detach().bfloat16()
    ours(x, REAL)
    exact(x.double(), REAL)
    torch.testing.assert_close(ours.running_var.double(), exact.running_var, rtol=1e-5, atol=1e-5)


def test_batch_norm_at_inference_has_the_running_statistics(pair):
    ours, theirs = (norm.eval() for norm in pair)
    before, x = copy.deepcopy(ours.state_dict()), given()
    torch.testing.assert_close(ours(x, REAL), theirs(x.flatten(0, 1)).view_as(x), **EXACT)
    assert torch.equal(ours(x, REAL)[1:2, :2], ours(x[1:2, :2]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())


def test_processes_that_share_a_batch_normalise_it_as_one_does(pair, monkeypatch):
    """Threads stand for processes: each has some of the batch, and all meet in every sum."""
    whole, _ = pair
    sizes, barrier, met = (1, 2), threading.Barrier(2, timeout=60), [torch.zeros(0)] * 2
    norms, x, up = [copy.deepcopy(whole) for _ in sizes], given(), torch.randn(B, T, M, dtype=torch.float64)
    here = threading.local()

    def all_reduce(tensor: Tensor) -> None:
        met[here.rank] = tensor.clone()
        barrier.wait()
        tensor.copy_(met[0] + met[1])
        barrier.wait()

    def part(rank: int) -> tuple[Tensor, Tensor]:
        here.rank = rank
        rows = slice(0, 1) if rank == 0 else slice(1, 3)
        own = x.detach()[rows].requires_grad_()
        output = norms[rank](own, REAL[rows])
        (gradient,) = torch.autograd.grad((output * up[rows])[REAL[rows]].sum(), own)
        return output.detach(), gradient

    expected = whole(x, REAL)
    (expected_gradient,) = torch.autograd.grad((expected * up)[REAL].sum(), x)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(part, range(2)))
    outputs, gradients = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    torch.testing.assert_close(outputs[REAL], expected[REAL], **EXACT)
    torch.testing.assert_close(gradients[REAL], expected_gradient[REAL], **EXACT)
    for norm in norms:
        torch.testing.assert_close(norm.running_mean, whole.running_mean, **EXACT)
        torch.testing.assert_close(norm.running_var, whole.running_var, **EXACT)


def test_one_real_position_is_normalised_to_the_bias(pair):
    ours, _ = pair
    only = REAL & (torch.arange(B) == 2)[:, None]
    output = ours(given(), only)
    torch.testing.assert_close(output[2, 0], ours.bias)
    assert ours.running_var.isfinite().all()


def test_padding_of_either_side_has_no_part_in_a_model_s_statistics(make_config):
    """A longer batch has more padding; dropout is off, so that only padding could make a difference."""
    model = Transformer(make_config(norm_kind="batch", norm="pre", embedding_norm=True, dropout=0.0)).double().train()
    other = copy.deepcopy(model)
    source, lengths = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]]), torch.tensor([4, 2])
    target = torch.tensor([[2, 4, 5], [2, 6, 0]])
    logits = model(source, lengths, target)
    longer = other(nn.functional.pad(source, (0, 3), value=9), lengths, nn.functional.pad(target, (0, 2)))
    torch.testing.assert_close(longer[:, :3][target != 0], logits[target != 0], **EXACT)
    for name, tensor in model.named_buffers():
        torch.testing.assert_close(other.get_buffer(name), tensor, **EXACT)
