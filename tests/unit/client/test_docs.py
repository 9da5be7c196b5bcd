"""docs/client.md says what is so."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

import translane_client
from translane.v1 import translation_pb2 as pb
from translane_client import AsyncClient, Client, errors
from translane_client.cli.command import parse_arguments
from translane_client.cli.decoding_flags import FLAGS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (?:paste .* \| )?(translane .*)$", PAGE, re.MULTILINE)


def flags_of(command: str) -> set[str]:
    parser: argparse.ArgumentParser = parse_arguments(command, [], {}).parser
    return set(parser._option_string_actions)


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_shown_are_understood(line: str):
    _, name, *argv = shlex.split(line, comments=True)
    if name.startswith("-"):
        pytest.skip("no command of the client")
    parse_arguments(name, [each for each in argv if each not in ("<", ">")], {})


def test_every_flag_named_exists():
    known = set[str]().union(*map(flags_of, ("translate", "score", "models", "bench")))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", PAGE))
    assert len(named) > len(FLAGS)
    assert named - known == {"--version"}


def test_the_table_of_options_is_that_of_the_protocol():
    rows = re.findall(r"^\| `(\w+)` \| `(--[\w-]+)`", PAGE, re.MULTILINE)
    assert dict(rows) == {name: flag.name for name, flag in FLAGS.items()}
    assert set(dict(rows)) == set(pb.DecodingOptions.DESCRIPTOR.fields_by_name)


def test_every_method_and_error_is_named():
    for kind in (Client, AsyncClient):
        for name in vars(kind):
            if not name.startswith("_"):
                assert f"`{name}(" in PAGE, name
    kinds = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert all(f"`{name}`" in PAGE for name in kinds)
    assert all(f"`{name}`" in PAGE for name in ("Translation", "Hypothesis", "Score", "StreamedTranslation"))
    assert kinds <= set(translane_client.__all__)


def test_links_lead_somewhere():
    headings = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        if link.startswith("#"):
            assert link[1:] in headings
        elif "://" not in link:
            assert (ROOT / "docs" / link.partition("#")[0]).exists(), link
