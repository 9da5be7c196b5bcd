"""The dashboard's panels as pictures: what Grafana would draw of the same queries, row by row."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.dates import DateFormatter, MinuteLocator
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from benchmarks.report.dashboard import Panel, Query, Row
from benchmarks.report.plots import STYLE

WIDTH = 8.6  # [inches]
LINE = 0.27  # height of a line of Grafana's grid [inches]
COLOURS = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8C564B", "#999999", "#F0E442")
LIMIT = "#D55E00"
STEPS = ("#009E73", "#E69F00", "#D55E00")  # good, near, over
SMALL = {**STYLE, "font.size": 7.5, "axes.titlesize": 8.5, "lines.linewidth": 1.2, "axes.titleweight": "bold"}
MOST_LEGENDS = 6

Series = Mapping[str, Any]
Ask = Callable[[Query], Sequence[Series]]
"""Gives the series of a query over the time of the picture, as Prometheus's HTTP API does."""


def picture(row: Row, ask: Ask) -> Figure:
    """The panels of a row that have data, at their places in Grafana's grid."""
    answers = {panel.title: [(query, ask(query)) for query in panel.queries] for panel in row.panels}
    panels = [panel for panel in row.panels if any(found for _, found in answers[panel.title])]
    lines = [list(line) for _, line in itertools.groupby(panels, key=lambda panel: panel.y)]
    heights = [line[0].height * LINE for line in lines]
    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.1), layout="constrained")
        layout: Any = figure.get_layout_engine()
        layout.set(w_pad=0.08, h_pad=0.06)
        parts = figure.subfigures(len(lines), 1, height_ratios=heights, squeeze=False).flatten()
        for part, line in zip(parts, lines, strict=True):
            grid = part.subplots(1, len(line), width_ratios=[panel.width for panel in line], squeeze=False).flatten()
            for axes, panel in zip(grid, line, strict=True):
                axes.set_title(panel.title, loc="left")
                _KINDS[panel.kind](axes, panel, answers[panel.title])
        figure.draw_without_rendering()  # with this style, which counts until here
    return figure


Answers = Sequence[tuple[Query, Sequence[Series]]]


def _time_series(axes: Any, panel: Panel, answers: Answers) -> None:
    lines = [(_legend(query, series), *_points(series)) for query, found in answers for series in found]
    lines = [line for line in lines if not all(map(math.isnan, line[2]))]
    (_stack if panel.stacked else _draw)(axes, lines)
    highest = 1.08 * max(axes.dataLim.y1, 0.0) or 1.0
    axes.set_ylim(0, highest)
    axes.yaxis.set_major_locator(MultipleLocator(_tick(highest, panel.unit)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _number(value, panel.unit)))
    _time_axis(axes)
    columns = 1 if panel.width < 8 else 2
    axes.legend(loc="upper left", bbox_to_anchor=(-0.14, -0.12), ncols=columns, fontsize=6.2, handlelength=1.2,
                columnspacing=0.8)  # fmt: skip


Line = tuple[str, list[Any], list[float]]
"""A legend, times and values."""


def _stack(axes: Any, lines: Sequence[Line]) -> None:
    times = sorted({at for _, its_times, _ in lines for at in its_times})
    below = [0.0] * len(times)
    for number, (legend, its_times, values) in enumerate(lines):
        known = dict(zip(its_times, values, strict=True))
        above = [low + known.get(at, 0.0) for at, low in zip(times, below, strict=True)]
        axes.fill_between(times, below, above, color=COLOURS[number % len(COLOURS)], lw=0, alpha=0.75, label=legend)
        below = above


def _draw(axes: Any, lines: Sequence[Line]) -> None:
    """Draw lines, with gaps where a series has no values. Limits are dashed."""
    step = min((b - a for _, times, _ in lines for a, b in itertools.pairwise(times)), default=0.0)
    colours = itertools.cycle(COLOURS)
    for number, (legend, times, values) in enumerate(lines):
        gaps = [place for place in range(1, len(times)) if times[place] - times[place - 1] > 1.5 * step]
        for place in reversed(gaps):
            times.insert(place, times[place - 1] + step)
            values.insert(place, math.nan)
        label = legend if number < MOST_LEGENDS else None
        if legend.endswith("limit"):
            axes.plot(times, values, color=LIMIT, ls=(0, (5, 4)), label=label)
        else:
            axes.plot(times, values, color=next(colours), label=label)


def _tick(highest: float, unit: str) -> float:
    """A round distance of ticks, of which three or four are shown: round in bytes of a power of 1024, too."""
    base = 1024.0 ** int(math.log(max(highest, 1), 1024)) if unit == "bytes" else 1.0
    least = highest / base / 4
    power: float = 10.0 ** math.floor(math.log10(least))
    return base * power * next(each for each in (1, 2, 2.5, 5, 10) if each * power >= least * 0.999)


def _heatmap(axes: Any, panel: Panel, answers: Answers) -> None:
    ((_, found),) = answers
    bounds = {float(series["metric"]["le"]): series for series in found}
    rows = [_points(bounds[bound])[1] for bound in sorted(bounds)]
    times = _points(found[0])[0]
    counts = [rows[0]]
    for below, upto in itertools.pairwise(rows):
        counts.append([high - low for low, high in zip(below, upto, strict=True)])
    used = [number for number, row in enumerate(counts) if any(count > 0 for count in row)]
    low, high = max(0, used[0] - 1), used[-1] + 1
    labels = [_number(bound, panel.unit) for bound in sorted(bounds)]
    image = axes.pcolormesh(times, range(high - low), counts[low:high], cmap="Blues", shading="nearest", vmin=0)
    axes.set_yticks([place + 0.5 for place in range(high - low)][::2], labels[low:high][::2])
    axes.grid(visible=False)
    image.set_rasterized(True)
    _time_axis(axes)


def _stat(axes: Any, panel: Panel, answers: Answers) -> None:
    ((_, found),) = answers
    times, values = _points(found[0]) if found else ([], [math.nan])
    last = next((value for value in reversed(values) if not math.isnan(value)), math.nan)
    colour = STEPS[sum(last >= threshold for threshold in panel.thresholds)]
    if times:
        axes.fill_between(times, 0, values, color=colour, alpha=0.2, lw=0)
    axes.set_ylim(0, 2.2 * max([value for value in values if not math.isnan(value)] or [1]) or 1)
    axes.text(0.5, 0.6, _number(last, panel.unit), transform=axes.transAxes, ha="center", va="center", fontsize=15,
              color=colour, fontweight="bold")  # fmt: skip
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _table(axes: Any, _panel: Panel, answers: Answers) -> None:
    ((_, found),) = answers
    labels = sorted({label for series in found for label in series["metric"]})
    axes.set_axis_off()
    cells = [[series["metric"].get(label, "") for label in labels] for series in found]
    if cells:
        table = axes.table(cells, colLabels=labels, loc="upper left", cellLoc="left", edges="horizontal")
        table.auto_set_font_size(False)
        table.set_fontsize(7.5)
        table.scale(1, 1.3)
        table.set_in_layout(False)  # it would shrink the panels below it to nothing


_KINDS = {"timeseries": _time_series, "heatmap": _heatmap, "stat": _stat, "table": _table}


def _points(series: Series) -> tuple[list[Any], list[float]]:
    """Times, which matplotlib reads as dates, and values of a series."""
    times = [at / 86400 for at, _ in series["values"]]
    return times, [float(value) for _, value in series["values"]]


def _legend(query: Query, series: Series) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: series["metric"].get(found[1], ""), query.legend)


def _time_axis(axes: Any) -> None:
    axes.xaxis.set_major_locator(MinuteLocator())
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    axes.tick_params(axis="x", labelsize=6.5)
    axes.margins(x=0)


def _number(value: float, unit: str) -> str:
    """A value as Grafana writes it in a unit."""
    if math.isnan(value) or math.isinf(value):
        return "–" if math.isnan(value) else "∞"
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "bytes":
        return _scaled(value, ((2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B")))
    if unit == "s":
        return _scaled(value, ((1, " s"), (1e-3, " ms"), (1e-6, " µs")))
    after = " /s" if unit == "reqps" else ""
    return _scaled(value, ((1e6, " M"), (1e3, " k"), (1, ""))) + after


def _scaled(value: float, scales: Sequence[tuple[float, str]]) -> str:
    if value == 0:
        return "0"
    scale, name = next((each for each in scales if abs(value) >= each[0]), scales[-1])
    return f"{value / scale:.3g}{name}"
