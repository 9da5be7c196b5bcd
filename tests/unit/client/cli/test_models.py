"""`translane models`."""

from __future__ import annotations

import json

from unit.client.fake_server import FakeServer

from helpers.client_command import Command
from translane.v1 import translation_pb2 as pb


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
    assert shown["limits"]["max_request_texts"] == 64
    assert shown["models"][0]["source_languages"] == ["zh-Hans", "zh-Hant"]


def test_models_tell_their_defaults_and_glossaries(server: FakeServer, command: Command):
    server.decoding_defaults = pb.DecodingOptions(beam_size=6, length_penalty=0.6, early_stopping=True)
    server.glossaries = ["cats", "dogs"]
    assert command("models") == 0
    assert command.out.splitlines()[2:5] == [
        "zh-en decodes by default with beam_size 6, length_penalty 0.6, early_stopping true",
        "zh-en has the glossaries cats, dogs",
        "",
    ]
    command.stdout.truncate(0)
    command.stdout.seek(0)
    assert command("models", "--json") == 0
    shown = json.loads(command.out)["models"][0]
    assert shown["decoding_defaults"] == {"beam_size": 6, "length_penalty": 0.6, "early_stopping": True}
    assert shown["glossaries"] == ["cats", "dogs"]
