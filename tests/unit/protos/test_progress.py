"""How far long work is, on a real terminal and elsewhere."""

from __future__ import annotations

import io
import os
import re
import threading
from contextlib import suppress

import pytest

from translane.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("translane.progress.time.monotonic", lambda: now[0])
    return now


def drawn(clock: list[float], *, erase: bool = False, hung_up: bool = False) -> str:
    """What a terminal gets of work on a hundred sentences."""
    ours, theirs = os.openpty()
    read: list[bytes] = []

    def reading() -> None:
        with suppress(OSError):  # the end of a terminal
            while True:
                read.append(os.read(ours, 1 << 16))

    reader = threading.Thread(target=reading)
    terminal = os.fdopen(theirs, "w", encoding="utf-8")
    progress = Progress("sentences", total=100, stream=terminal, say=pytest.fail)
    if hung_up:
        os.close(ours)
    else:
        reader.start()
    for _ in range(100):
        clock[0] += 1 / 16
        progress.add(1)
    progress.close(erase=erase)
    if hung_up:
        with pytest.raises(OSError, match="Input/output error"):
            terminal.close()
        return ""
    terminal.close()
    reader.join()
    os.close(ours)
    return b"".join(read).decode()


def test_a_terminal_has_a_bar_of_one_line(clock: list[float]) -> None:
    text = drawn(clock)
    assert text.count("\n") == 1
    states = [state.removesuffix("\x1b[K") for state in text.strip().split("\r")]
    assert f"51 sentences  16/s   51% [{'#' * 12}{' ' * 12}]  0:03 left" in states
    assert states[-1] == f"100 sentences  16/s  100% [{'#' * 24}]  0:00 left"
    assert len(states) == 51  # every other one, and the last


def test_a_bar_can_be_taken_away(clock: list[float]) -> None:
    assert re.search(r"\r\x1b\[K$", drawn(clock, erase=True))


def test_work_outlives_its_terminal(clock: list[float]) -> None:
    drawn(clock, hung_up=True)


def test_elsewhere_there_is_a_line_now_and_then(clock: list[float]) -> None:
    lines: list[str] = []
    note = "; 9.0% duplicates"
    progress = Progress("sources", total=10_000, done=1_000, stream=io.StringIO(), say=lines.append, note=note)
    for second in range(1, 31):
        clock[0] = float(second)
        progress.add(100)
    progress.close()
    assert lines == [
        "2,000 of 10,000 sources, 100 a second, 1:20 left; 9.0% duplicates",
        "3,000 of 10,000 sources, 100 a second, 1:10 left; 9.0% duplicates",
        "4,000 of 10,000 sources, 100 a second, 1:00 left; 9.0% duplicates",
    ]
    assert progress.seconds == 30.0
    lines.clear()
    reading = Progress("records read", say=lines.append)
    of_bytes = Progress("sentences", total=1_000, say=lines.append)
    clock[0] += 3600
    reading.add(0)
    of_bytes.add(7, 500)
    assert lines == ["0 records read, 0 a second", "7 sentences, 0 a second, 1:00:00 left"]
