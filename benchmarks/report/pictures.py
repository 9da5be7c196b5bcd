"""Where a page's pictures are written, and how the page shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.report.plots import save


@dataclass(frozen=True)
class Pictures:
    """The pictures of a page.

    Attributes:
        folder: to write them to.
        link: the same folder, as seen from the page.
        prefix: of their file names.
    """

    folder: Path
    link: str
    prefix: str = ""

    def shown(self, name: str, figure: Figure, alternative: str) -> Iterator[str]:
        """Write a picture; return the lines that show it."""
        path = save(figure, self.folder / f"{self.prefix}{name}.png")
        yield from (f"![{alternative}]({self.link}/{path.name})", "")
