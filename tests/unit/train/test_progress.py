import re
import sys
import time

import pytest

from translane_export.train.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_half_minute(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress(max_steps=100, max_seconds=0, done_steps=40, done_seconds=0)
    for loss, tokens in ((4.0, 100), (2.0, 300), (1.0, 50)):
        clock[0] += 15
        progress.update(loss, tokens)
    progress.close()
    # two steps of 15 s, 58 to go: 870 s
    assert capfd.readouterr().err == "step 42: loss 2.500, 13 tokens/s, 14:30 left\n"


def test_the_nearest_limit_says_how_long_it_takes(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress(max_steps=0, max_seconds=600, done_steps=5, done_seconds=90)
    progress.expect(15)
    clock[0] += 30
    progress.update(1.0, 10)
    clock[0] += 450
    progress.update(1.0, 10)
    assert re.findall(r"[\d:]+ left", capfd.readouterr().err) == ["04:30 left", "00:30 left"]


def test_without_a_limit_nobody_knows(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress(max_steps=0, max_seconds=0, done_steps=0, done_seconds=0)
    clock[0] += 31
    progress.update(1.0, 10)
    assert "unknown time left" in capfd.readouterr().err


def test_a_terminal_gets_a_bar(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress = Progress(max_steps=2, max_seconds=0, done_steps=0, done_seconds=0)
    for _ in range(2):
        clock[0] += 1
        progress.update(3.0, 10)
    progress.say("a line")
    progress.close()
    shown = capfd.readouterr().err
    assert "2/2" in shown
    assert "loss 3.000, 10 tokens/s, 00:00 left" in shown
    assert "a line" in shown
