"""The pictures of the benchmarks: PNG files on white, so that they are legible on dark pages, too."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image

from benchmarks.report.product_tables import over_products

LABELS = {"translane": "Translane", "ctranslate2": "CTranslate2"}
# Told apart by readers who see few colours, and in grey: Okabe and Ito's blue and vermilion, with markers of their own.
COLOURS = {"translane": "#0072B2", "ctranslate2": "#D55E00"}
MARKERS = {"translane": "o", "ctranslate2": "s"}
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
SYMBOLS = "osD^vP"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E2E2E2",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}
WIDTH = 8.6  # inches, at 140 dots each
DOTS = 140
COLOURS_OF_A_FILE = 96
Quantity = Mapping[str, Mapping[str, Any]]  # of each engine, by rows or length


def save(figure: Figure, path: Path) -> Path:
    """Write a figure with few colours, which makes small files."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DOTS, facecolor="white", format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.open(buffer).convert("RGB").quantize(COLOURS_OF_A_FILE, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    return path


def panels(count: int, columns: int, height: float) -> tuple[Figure, list[Any]]:
    """A figure of `count` panels, each `height` inches high, under room for a legend."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(WIDTH, rows * height + 0.4), layout="constrained")
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.1, h_pad=0.06)
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def legend(figure: Figure, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))


def as_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def doubling_x(axes: Any, ticks: Iterable[int]) -> None:
    """A logarithmic axis with what was measured on it."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ticks), [str(tick) for tick in sorted(ticks)])


def log_y(axes: Any) -> None:
    """A logarithmic axis with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: as_number(value)))
    low, high = axes.get_ylim()
    if high / low < 30:  # one or two labels would be all there are
        few = FuncFormatter(lambda value, _: as_number(value) if f"{value:.0e}"[0] in "25" else "")
        axes.yaxis.set_minor_formatter(few)
    else:
        axes.yaxis.set_minor_formatter(NullFormatter())


def offline(cells: Sequence[Mapping[str, Any]]) -> Figure:
    """Target tokens/s of both engines, a panel for each precision and search of one model; ratios above the bars."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault((cell["precision"], cell["search"]), []).append(cell)
    figure, grid = panels(len(groups), 2, 2.2)
    for axes, ((precision, search), found) in zip(grid, groups.items(), strict=True):
        highest = max(cell[name]["rate"] for cell in found for name in LABELS)
        for offset, (name, title) in zip((-0.2, 0.2), LABELS.items(), strict=True):
            places = [number + offset for number in range(len(found))]
            rates = [cell[name]["rate"] for cell in found]
            hatch = "///" if name == "ctranslate2" else None
            axes.bar(places, rates, 0.38, color=COLOURS[name], label=title, hatch=hatch, edgecolor="white", lw=0)
        for number, cell in enumerate(found):
            ours, theirs = (cell[name]["rate"] for name in LABELS)
            axes.text(number, max(ours, theirs) + 0.02 * highest, f"{ours / theirs:.2f}×", ha="center", va="bottom")
        axes.set_title(f"{found[0]['model']}, {precision}, {search}")
        axes.set_xticks(range(len(found)), [str(cell["batch"]) for cell in found])
        axes.set_xlabel("batch [sentences]")
        axes.set_ylabel("target tokens/s")
        axes.set_ylim(0, 1.15 * highest)
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    legend(figure, grid[0])
    return figure


def latency(cells: Sequence[Mapping[str, Any]], bound: float) -> Figure:
    """p50 and p95 against the rate, and the highest rates that keep the bound."""
    figure, grid = panels(len(cells), 2, 2.7)
    for axes, cell in zip(grid, cells, strict=True):
        for name, title in LABELS.items():
            for quantile, line in (("p50", "--"), ("p95", "-")):
                points = list(_quantiles(cell["grid"], name, quantile))
                axes.plot(
                    *zip(*points, strict=True) if points else ((), ()),
                    line,
                    marker=MARKERS[name],
                    color=COLOURS[name],
                    markerfacecolor=COLOURS[name] if quantile == "p95" else "white",
                    label=f"{title} {quantile}",
                )
            axes.axvline(cell["highest_rate"][name], color=COLOURS[name], lw=1, ls=":")
        axes.axhline(1000 * bound, color="#555555", lw=1, ls="-.", label=f"bound, {1000 * bound:g} ms")
        axes.plot([], [], color="#555555", lw=1, ls=":", label="highest rate that keeps it")
        log_y(axes)
        low, high = axes.get_ylim()
        axes.set_ylim(10 ** math.floor(math.log10(low)), high)
        axes.set_xlim(left=0)
        axes.set_title(f"{cell['model']}, {cell['precision']}, {cell['search']}")
        axes.set_xlabel("sentences/s that arrive")
        axes.set_ylabel("latency [ms]")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def _quantiles(grid: Iterable[Mapping[str, Any]], name: str, quantile: str) -> Iterable[tuple[float, float]]:
    """Rates and latencies [ms]; nothing where few were answered."""
    for row in grid:
        found = [each["latency_seconds"][quantile] for each in row[name]]
        median = statistics.median(math.inf if value is None else value for value in found)
        if math.isfinite(median):
            yield row["rate"], 1000 * median


def curves(models: Mapping[str, Quantity], x: str, y: str, scale: float, *, log: bool = False) -> Figure:
    """A quantity of both engines, a panel for each model; `scale` turns it into the unit of `y`."""
    figure, grid = panels(len(models), 2, 2.4)
    for axes, (title, found) in zip(grid, models.items(), strict=True):
        for name, label in LABELS.items():
            points = sorted((int(key), scale * value) for key, value in found[name].items() if value > 0)
            axes.plot(*zip(*points, strict=True), marker=MARKERS[name], color=COLOURS[name], label=label)
        doubling_x(axes, {int(key) for values in found.values() for key in values})
        if log:
            log_y(axes)
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(title)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
    legend(figure, grid[0])
    return figure


def start(models: Mapping[str, Mapping[str, float]]) -> Figure:
    """Seconds to the first translation."""
    figure = Figure(figsize=(WIDTH, 0.9 + 0.5 * len(models)), layout="constrained")
    axes = figure.subplots()
    for offset, (name, label) in zip((-0.19, 0.19), LABELS.items(), strict=True):
        places = [number + offset for number in range(len(models))]
        hatch = "///" if name == "ctranslate2" else None
        bars = axes.barh(
            places,
            [found[name] for found in models.values()],
            0.36,
            color=COLOURS[name],
            label=label,
            hatch=hatch,
            edgecolor="white",
            lw=0,
        )
        axes.bar_label(bars, fmt=" %.2f")
    axes.set_yticks(range(len(models)), list(models))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("seconds from opening the model to the first translation")
    axes.margins(x=0.08)
    legend(figure, axes)
    return figure


def products(records: Sequence[Mapping[str, Any]], title: Callable[[Mapping[str, Any]], str]) -> Figure:
    """The time of a step over that of its matrix products, against rows."""
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    axes = figure.subplots()
    ticks: set[int] = set()
    for number, record in enumerate(records):
        points = sorted((int(rows), over_products(found)) for rows, found in record["rows"].items())
        ticks.update(rows for rows, _ in points)
        style: dict[str, Any] = {"marker": SYMBOLS[number % len(SYMBOLS)], "color": SERIES[number % len(SERIES)]}
        axes.plot(*zip(*points, strict=True), label=title(record), **style)
    doubling_x(axes, ticks)
    axes.axhline(1, color="#555555", lw=1, ls="-.")
    axes.set_ylim(bottom=0.9)
    axes.set_xlabel("rows")
    axes.set_ylabel("step / matrix products")
    legend(figure, axes)
    return figure


def soak(samples: Sequence[Mapping[str, float]]) -> Figure:
    """Resident memory against sentences."""
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [sample["sentences"] / 1000 for sample in samples],
        [sample["bytes"] / 1e6 for sample in samples],
        color=COLOURS["translane"],
    )
    axes.set_ylim(0, 1.15 * max(sample["bytes"] for sample in samples) / 1e6)  # the line keeps off the edge
    axes.set_xlabel("thousands of sentences")
    axes.set_ylabel("resident memory [MB]")
    return figure
