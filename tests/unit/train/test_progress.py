import re
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
