"""The pictures: attention by layer and head, positions, and operators; on white, legible on dark pages, too."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from translane_export.explain.attention import AttentionWeights
from translane_export.explain.labels import Fonts
from translane_export.explain.operators import GraphTime
from translane_export.explain.positions import PositionTable
from translane_export.explain.settings import PictureFormat

MOST_LAYERS, MOST_HEADS = 12, 16  # of a picture; the page has all

_DOTS = 100  # per inch, of a PNG
_COLOUR = "#0072B2"
_SMALLEST = 4.0  # points of a label that can still be read
_LARGEST = 8.0
_OPERATORS = 12  # bars of a graph
_POINTS = 72  # per inch

# svg.hashsalt makes the same picture the same file.
_STYLE: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "translane", "font.size": 8.0}

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of fonts and folders, which nobody chose


class Painter:
    """Draws pictures in one format, as the bytes of a file.

    Args:
        form: the format.
        fonts: what labels are drawn with.
    """

    def __init__(self, form: PictureFormat, fonts: Fonts) -> None:
        self._form = form
        # The viewer of an SVG has fonts of its own, so nothing is missing there.
        self._fonts = fonts if form == "png" else Fonts((*fonts.families, "sans-serif"), frozenset())

    def attention(self, attention: AttentionWeights) -> bytes:
        """Draw the weights of up to 12 layers and 16 heads: a row for each layer, a column for each head."""
        layers, heads, rows, columns = attention.weights.shape
        shown = attention.weights[:MOST_LAYERS, :MOST_HEADS]
        layers, heads = shown.shape[:2]
        side = min(3.2, max(1.1, 20 / max(layers, heads)))  # inches of a panel
        height, width = (side * n / max(rows, columns) for n in (rows, columns))
        panel = max(width, 0.5 * side), max(height, 0.5 * side)
        size = (heads * panel[0] + 1.6, layers * (panel[1] + 0.25) + 1.3)
        with self._style():
            figure = Figure(figsize=size, layout="constrained")
            grid = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
            for layer, head in np.ndindex(layers, heads):
                axes = grid[layer, head]
                image = axes.imshow(shown[layer, head], vmin=0, vmax=1, cmap="Blues", aspect="auto")
                axes.set_title(f"layer {layer}, head {head}", fontsize=_LARGEST)
                axes.tick_params(length=0)
            self._label(grid[0, 0].yaxis, attention.rows, panel[1], 0)
            self._label(grid[-1, 0].xaxis, attention.columns, panel[0], 90)
            for axes in grid[-1, 1:]:
                self._label(axes.xaxis, attention.columns, panel[0], 90)
            for axes in grid[1:, 0]:
                self._label(axes.yaxis, attention.rows, panel[1], 0)
            figure.supylabel(f"{attention.row_kind}, from the top", fontsize=_LARGEST)
            figure.supxlabel(attention.column_kind, fontsize=_LARGEST)
            figure.colorbar(image, ax=grid, fraction=0.02, aspect=30, label="weight")
            return self._save(figure)

    def positions(self, tables: Sequence[PositionTable]) -> bytes:
        """Draw tables of positions, one above the other."""
        with self._style():
            figure = Figure(figsize=(7.5, 3.2 * len(tables)), layout="constrained")
            grid = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
            for axes, table in zip(grid, tables, strict=True):
                most = float(np.abs(table.values).max()) or 1.0
                count, columns = table.values.shape
                edges = (table.first_column - 0.5, table.first_column + columns - 0.5, count - 0.5, -0.5)
                image = axes.imshow(
                    table.values,
                    cmap="RdBu_r",
                    vmin=-most,
                    vmax=most,
                    aspect="auto",
                    extent=edges,
                    interpolation="nearest",
                )
                axes.set(title=table.title, xlabel=table.columns, ylabel=table.rows)
                axes.yaxis.get_major_locator().set_params(integer=True)
                figure.colorbar(image, ax=axes, pad=0.01)
            return self._save(figure)

    def operators(self, graphs: Sequence[GraphTime]) -> bytes:
        """Draw a bar for each type of operator: its share of the time of a run of its graph."""
        shown = [_bars(graph) for graph in graphs]
        with self._style():
            figure = Figure(figsize=(7.5, 0.22 * sum(map(len, shown)) + 0.9 * len(graphs)), layout="constrained")
            ratios = [len(bars) + 1 for bars in shown]
            grid = figure.subplots(len(graphs), 1, squeeze=False, height_ratios=ratios)[:, 0]
            for axes, graph, bars in zip(grid, graphs, shown, strict=True):
                drawn = axes.barh([name for name, _ in bars], [100 * share for _, share in bars], color=_COLOUR)
                axes.bar_label(drawn, fmt="%.1f", padding=2)
                axes.invert_yaxis()
                axes.set(title=f"{graph.graph}, {graph.unprofiled:,.0f} µs", xlabel="share of the time [%]")
                axes.spines[["top", "right"]].set_visible(False)
                axes.margins(x=0.08, y=0.02)
            return self._save(figure)

    def _style(self) -> Any:
        return mpl.rc_context({**_STYLE, "font.family": list(self._fonts.families)})

    def _label(self, axis: Any, pieces: Sequence[str], inches: float, rotation: int) -> None:
        """Put a piece at every cell of an axis, or none where they would be too small to read."""
        points = min(_LARGEST, 0.9 * inches * _POINTS / len(pieces))
        if points < _SMALLEST:
            axis.set_ticks([])
            return
        labels = [self._fonts.label(piece) for piece in pieces]
        axis.set_ticks(range(len(pieces)), labels, fontsize=points, rotation=rotation, parse_math=False)

    def _save(self, figure: Figure) -> bytes:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # of an SVG, which the viewer draws
            # Without a date, the same picture is the same file.
            metadata = {"Date": None} if self._form == "svg" else None
            figure.savefig(buffer, format=self._form, dpi=_DOTS, facecolor="white", metadata=metadata)
        return buffer.getvalue()


def _bars(graph: GraphTime) -> list[tuple[str, float]]:
    """Return the largest shares by name; the smaller ones are together in one."""
    *operators, between = [(name, share) for name, _, _, share in graph.table()]
    bars, rest = operators[:_OPERATORS], operators[_OPERATORS:]
    others = [(f"{len(rest)} others", sum(share for _, share in rest))] if rest else []
    return [*bars, *others, between]
