"""Files of PyTorch that are cut off anywhere, and memory that ends: one sentence each."""

from collections import Counter

import pytest
import torch

from translane_export.errors import ExportError
from translane_export.sources.weight_files import read_weights

NAME = "pytorch_model.bin"


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_is_cut_off_anywhere(tmp_path, zipped):
    """The format before PyTorch 1.6, too, whose tensors follow the pickles with their lengths before them."""
    path = tmp_path / NAME
    torch.save({"a": torch.arange(6.0), "b": torch.ones(2, 3)}, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    assert set(read_weights(tmp_path)) == {"a", "b"}
    reasons: Counter[str] = Counter()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ExportError) as caught:
            read_weights(tmp_path)
        reasons[str(caught.value).removeprefix(f"{path}: ").partition(":")[0]] += 1
    # half a name in a pickle is another name
    reasons.pop("it holds more than tensors and plain values, which is not read", None)
    assert set(reasons) <= {"it is not a PyTorch file", "it is cut off", "it is cut off or damaged"}
    assert reasons.total() > 0.8 * len(whole)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: not enough memory: you")],
)
def test_memory_that_is_not_enough(tmp_path, monkeypatch, error):
    path = tmp_path / NAME
    torch.save({"a": torch.ones(1)}, path)

    def load(*_arguments, **_keywords):
        raise error

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(ExportError) as caught:
        read_weights(tmp_path)
    assert str(caught.value) == f"{path}: there is not enough memory to read it, or it is damaged"
