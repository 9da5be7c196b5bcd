"""The `translane` command against a service: files, standard output, and exit codes."""

from __future__ import annotations

import pytest
from integration.targets.conftest import on_a_server

from helpers.client_command import Command
from helpers.reliability.cases import SENTENCES

pytestmark = [pytest.mark.slow, on_a_server]

LINES = [SENTENCES[number % len(SENTENCES)] for number in range(200)]


@pytest.fixture
def command(target):
    return Command(target.address)


@pytest.fixture(scope="session")
def translated(undisturbed):
    """The translations of SENTENCES, by sentence."""
    return dict(zip(SENTENCES, (each.text for each in undisturbed.translate(SENTENCES)), strict=True))


def test_a_file(command, translated, tmp_path):
    source, target = tmp_path / "zh.txt", tmp_path / "en.txt"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert command("translate", "-i", str(source), "-o", str(target), "--batch-size", "7") == 0
    assert target.read_text(encoding="utf-8").splitlines() == [translated[line] for line in LINES]
    assert [path.name for path in tmp_path.iterdir() if "journal" in path.name] == []


def test_texts_with_scores_and_several_hypotheses(command, undisturbed):
    assert command("translate", SENTENCES[0], SENTENCES[1], "--nbest", "3") == 0
    wanted = undisturbed.translate(SENTENCES[:2], beam_size=3, num_hypotheses=3)
    assert [line.split(" ||| ")[:2] for line in command.out.splitlines()] == [
        [str(number), hypothesis.text] for number, each in enumerate(wanted) for hypothesis in each.hypotheses
    ]


def test_a_wrong_line_is_named(command):
    assert command("translate", "--no-split-sentences", stdin=f"{SENTENCES[0]}\n{'猫' * 1000}\n".encode()) == 1
    assert "line 2" in command.err


def test_load_is_measured(command):
    assert command("bench", "--clients", "2", "--duration", "500ms", "--warm-up", "100ms") == 0
