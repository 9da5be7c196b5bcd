"""`translane models`."""

from __future__ import annotations

import json

from unit.client.command import Command


def test_models_as_a_table(command: Command):
    assert command("models") == 0
    heading, row, blank, limits = command.out.splitlines()
    assert heading.split()[:4] == ["NAME", "VERSION", "LANGUAGES", "PRECISION"]
    assert row.split() == ["zh-en", "1.2", "zh-Hans,zh-Hant→en", "fp32", "cpu", "9,876,543", "256", "128"]
    assert heading.index("PRECISION") == row.index("fp32")
    assert blank == ""
    assert limits.startswith("server 0.1.0: at most 64 texts per request, 256 sentences waiting")


def test_models_as_json(command: Command):
    assert command("models", "--json") == 0
    shown = json.loads(command.out)
    assert shown["limits"]["texts_per_request"] == 64
    assert shown["models"][0]["source_languages"] == ["zh-Hans", "zh-Hant"]
