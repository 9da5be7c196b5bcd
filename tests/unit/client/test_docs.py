"""docs/client.md says what is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from translane_client.cli.command import parse_arguments

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (?:paste .* \| )?(translane .*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_shown_are_understood(line: str):
    _, *argv = shlex.split(line.partition(" >")[0] if "--print-completion" in line else line, comments=True)
    if "--print-completion" in argv:
        with pytest.raises(SystemExit) as caught:
            parse_arguments(argv, {})
        assert caught.value.code == 0
        return
    parse_arguments([each for each in argv if each not in ("<", ">")], {})
