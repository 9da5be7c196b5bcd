"""The pictures: attention by layer and head, positions, and operators; on white, legible on dark pages, too."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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
_CELL, _LARGEST_PICTURE, _MARGIN = 0.22, 20.0, 0.15  # inches: a cell, a side of a picture, and around it
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
        """Draw the weights of up to 12 layers and 16 heads: a row of panels for each layer, a column for each head.

        All panels are one image: hundreds of axes would take a minute.
        """
        shown = attention.weights[:MOST_LAYERS, :MOST_HEADS]
        layers, heads, rows, columns = shown.shape
        gaps = max(1, rows // 8), max(1, columns // 8)
        down, across = rows + gaps[0], columns + gaps[1]  # cells from one panel to the next
        cells = np.full((layers * down - gaps[0], heads * across - gaps[1]), np.nan, np.float32)
        for layer, head in np.ndindex(layers, heads):
            cells[layer * down :, head * across :][:rows, :columns] = shown[layer, head]
        side = min(_CELL, _LARGEST_PICTURE / max(cells.shape))  # inches of a cell
        with self._style():
            figure = Figure(figsize=(cells.shape[1] * side, cells.shape[0] * side))
            axes = figure.add_axes((0, 0, 1, 1))
            # The square root, as on the page: among many pieces most weights are small.
            axes.imshow(cells, norm=PowerNorm(0.5, 0, 1), cmap="Blues", aspect="auto", interpolation="nearest")
            corners = [(head * across - 0.5, layer * down - 0.5) for layer, head in np.ndindex(layers, heads)]
            outlines = [Rectangle(corner, columns, rows) for corner in corners]
            axes.add_collection(
                PatchCollection(outlines, facecolor="none", edgecolor="#888888", linewidth=0.6, clip_on=False)
            )
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
            named = self._label(axes.yaxis, attention.rows, [layer * down for layer in range(layers)], side, 0)
            named &= self._label(axes.xaxis, attention.columns, [head * across for head in range(heads)], side, 90)
            for head in range(heads):
                middle = head * across + columns / 2 - 0.5
                axes.annotate(f"head {head}", (middle, -0.5), (0, 3), textcoords="offset points", ha="center")
            for layer in range(layers):
                edge, middle = cells.shape[1] - 0.5, layer * down + rows / 2 - 0.5
                axes.annotate(f"layer {layer}", (edge, middle), (3, 0), textcoords="offset points", va="center")
            axes.set(xlabel=attention.column_kind, ylabel=attention.row_kind)
            where = "" if named else "; the page names the pieces"
            axes.set_title(f"{attention.title}: white is 0, dark blue is 1{where}", pad=18)
            return self._save(figure)

    def positions(self, tables: Sequence[PositionTable]) -> bytes:
        """Draw tables of positions, one above the other."""
        with self._style():
            figure = Figure(figsize=(7.5, 3.2 * len(tables)))
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
            figure = Figure(figsize=(7.5, 0.22 * sum(map(len, shown)) + 0.9 * len(graphs)))
            ratios = [len(bars) + 1 for bars in shown]
            grid = figure.subplots(len(graphs), 1, squeeze=False, height_ratios=ratios, gridspec_kw={"hspace": 0.35})[
                :, 0
            ]
            for axes, graph, bars in zip(grid, graphs, shown, strict=True):
                drawn = axes.barh([name for name, _ in bars], [100 * share for _, share in bars], color=_COLOUR)
                axes.bar_label(drawn, fmt="%.1f", padding=2)
                axes.invert_yaxis()
                axes.set(
                    title=f"{graph.graph}, {graph.unprofiled:,.0f} µs a run", xlabel="share of the operators' time [%]"
                )
                axes.spines[["top", "right"]].set_visible(False)
                axes.margins(x=0.08, y=0.02)
            return self._save(figure)

    def _style(self) -> Any:
        return mpl.rc_context({**_STYLE, "font.family": list(self._fonts.families)})

    def _label(self, axis: Any, pieces: Sequence[str], starts: Sequence[int], inches: float, rotation: int) -> bool:
        """Put a piece at every cell of `inches`, in panels that start there; return whether there is room to do so."""
        points = min(_LARGEST, 0.9 * inches * _POINTS)
        if points < _SMALLEST:
            axis.set_ticks([])
            return False
        labels = [self._fonts.label(piece) for piece in pieces] * len(starts)
        places = [start + place for start in starts for place in range(len(pieces))]
        axis.set_ticks(places, labels, fontsize=points, rotation=rotation, parse_math=False)
        return True

    def _save(self, figure: Figure) -> bytes:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # of an SVG, which the viewer draws
            # Without a date, the same picture is the same file.
            metadata = {"Date": None} if self._form == "svg" else None
            figure.savefig(
                buffer,
                format=self._form,
                dpi=_DOTS,
                facecolor="white",
                bbox_inches="tight",
                pad_inches=_MARGIN,
                metadata=metadata,
            )
        return buffer.getvalue()


def _bars(graph: GraphTime) -> list[tuple[str, float]]:
    """Return the largest shares by name; the smaller ones are together in one."""
    rest = graph.operators[_OPERATORS:]
    others = [(f"{len(rest)} others", sum(each.share for each in rest))] if rest else []
    return [*((each.operator, each.share) for each in graph.operators[:_OPERATORS]), *others]
