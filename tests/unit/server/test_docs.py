"""docs/server.md says what is so."""

from pathlib import Path

import pytest

from translane.v1 import translation_pb2 as pb
from translane_server.metrics import Metrics
from translane_server.requests.option_checks import OptionLimits, ranges
from translane_server.rpc import status
from translane_server.settings import ServerSettings, TokenLimits

DOCS = (Path(__file__).parents[3] / "docs" / "server.md").read_text(encoding="utf-8")


def table(heading):
    """The rows of the table under `heading`, as lists of cells without their backquotes."""
    section = DOCS.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_settings():
    fields = ServerSettings.model_fields
    documented = {name: (default, meaning) for name, default, meaning in table("Settings")}
    assert list(documented) == list(fields)
    for name, (default, meaning) in documented.items():
        assert meaning == fields[name].description
        if fields[name].is_required():
            assert default == "required"
        elif fields[name].default is not None:
            assert default == str(fields[name].default).lower()


def test_options():
    documented = [name for name, *_ in table("Options")]
    assert documented == [field.name for field in pb.DecodingOptions.DESCRIPTOR.fields]
    limits = OptionLimits(TokenLimits(256, 256, 256), 16, alignment=True)
    described = {name: text for name, _, text, _ in table("Options")}
    for name, allowed in ranges(limits).items():
        expected = str(allowed).replace("to 16", "to `max_beam_size`").replace("to 256", "to `max_target_tokens`")
        assert described[name].replace("`", "") == expected.replace("`", "")


def test_metrics():
    declared = {}
    metrics = Metrics()
    metrics.watch_replicas([])
    for family in metrics.registry.collect():
        if family.name.startswith(("grpc_", "translane_")):
            suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
            kind = "gauge" if family.type == "info" else family.type
            declared[family.name + suffix] = (kind, family.documentation)
    assert {name: (kind, meaning) for name, kind, _, meaning in table("Metrics")} == declared


def test_errors():
    declared = {error.reason: code.name for error, code in status.CODES.items()}
    declared[status.INTERNAL] = "INTERNAL"
    assert {reason: code for reason, code, _, _ in table("Errors")} == declared


@pytest.mark.parametrize("heading", ["Settings", "Options", "Errors", "Metrics"])
def test_tables_have_no_row_twice(heading):
    names = [row[0] for row in table(heading)]
    assert len(set(names)) == len(names)
