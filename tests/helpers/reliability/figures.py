"""The figures that a test of reliability measured, in one line of the terminal and of build/reliability.txt."""

from __future__ import annotations

from pathlib import Path

PATH = Path(__file__).parents[3] / "build" / "reliability.txt"


class Figures:
    """Collects the figures of a test by name.

    Args:
        test: the name of the test.
    """

    def __init__(self, test: str) -> None:
        self._test = test
        self._values: dict[str, object] = {}

    def add(self, **values: object) -> None:
        """Add figures, such as `lost=0`. Underscores become spaces, and floats get three digits."""
        self._values |= values

    @property
    def line(self) -> str:
        """All figures in one line; empty if there are none."""
        shown = [f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in self._values.items()]
        return f"{self._test}: {', '.join(shown)}" if shown else ""

    def write(self) -> None:
        """Append the line to the file."""
        PATH.parent.mkdir(exist_ok=True)
        with PATH.open("a", encoding="utf-8") as file:
            file.write(self.line + "\n")


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        return " ".join(f"{count} {name}" for name, count in value.items()) or "none"
    return str(value)
