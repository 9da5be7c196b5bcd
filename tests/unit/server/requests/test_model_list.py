"""What ListModels says of a model, beside what its manifest says."""

import pytest

from fakes.serving import make_manifest
from translane_server.requests import model_list
from translane_server.requests.model_list import kernels_of


@pytest.mark.parametrize(
    ("precision", "device", "provenance", "expected"),
    [
        ("int8", "cpu", {"weight_bits": 7}, "kernels of 7 bits"),
        ("int8", "cpu", {"weight_bits": 8}, "kernels of 8 bits"),
        ("int8", "cpu", {}, "kernels of 8 bits"),  # as older exporters write
        ("int8", "cpu", {"weight_bits": "many"}, "kernels of 8 bits"),
        ("int8", "cuda", {"weight_bits": 7}, ""),
        ("fp32", "cpu", {}, ""),
    ],
)
def test_kernels_are_named_where_int8_runs_on_a_cpu(precision, device, provenance, expected, monkeypatch):
    monkeypatch.setattr(model_list, "int8_kernels", lambda bits: f"kernels of {bits} bits")
    manifest = make_manifest(provenance=provenance).model_copy(update={"precision": precision})
    assert kernels_of(manifest, device) == expected
