"""What ListModels says of a model, beside what its manifest says."""

import pytest

from fakes.serving import make_manifest
from translane_server.models import model_list
from translane_server.models.model_list import kernels_of


@pytest.mark.parametrize(
    ("precision", "device", "expected"), [("int8", "cpu", "kernels"), ("int8", "cuda", ""), ("fp32", "cpu", "")]
)
def test_kernels_are_named_where_int8_runs_on_a_cpu(precision, device, expected, monkeypatch):
    monkeypatch.setattr(model_list, "int8_kernels", lambda: "kernels")
    manifest = make_manifest().model_copy(update={"precision": precision})
    assert kernels_of(manifest, device) == expected
