"""Pictures of docs/scaling.md. All are of simulations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from benchmarks.report.plots import SERIES, SYMBOLS, doubling_x, legend, log_y, panels

_SIZES = ("4", "16", "64")  # cores of the machines that the first picture shows
_MOST_CORES = 1024

Record = Mapping[str, Any]


def rates(models: Mapping[str, Record], p95: float) -> Figure:
    """Sentences a second of many machines against all their cores, a panel for each model."""
    figure, grid = panels(len(models), 2, 2.8)
    for axes, (name, model) in zip(grid, models.items(), strict=True):
        ticks = set()
        for place, size in enumerate(_SIZES):
            rate = model["machines"][size]["rate"]
            cores = [each for each in _doubling(int(size)) if rate]
            ticks.update(cores)
            points = [each / int(size) * rate for each in cores]
            axes.plot(cores, points, label=f"machines of {size} cores", **_style(place))
        one = model["front_ends"]["1"][_SIZES[-1]]
        axes.axhline(one, color="#555555", lw=1, ls="-.", label="one front end")
        doubling_x(axes, ticks)
        log_y(axes)
        axes.set_title(f"{name}, p95 within {1000 * p95:g} ms")
        axes.set_xlabel("cores of all machines")
        axes.set_ylabel("sentences/s (modelled)")
    legend(figure, grid[0])
    return figure


def front_ends(models: Mapping[str, Record], p95: float) -> Figure:
    """Sentences a second of a machine against its cores, a line for each number of front ends."""
    figure, grid = panels(len(models), 2, 2.8)
    for axes, (name, model) in zip(grid, models.items(), strict=True):
        machines = model["machines"]
        numbers = model["front_ends"].items()
        lines = {f"{number} front end{'' if number == '1' else 's'}": found for number, found in numbers}
        lines["as many as suit"] = {cores: machine["rate"] for cores, machine in machines.items()}
        for place, (label, found) in enumerate(lines.items()):
            points = sorted((int(cores), rate) for cores, rate in found.items() if rate)
            axes.plot(*zip(*points, strict=True) if points else ((), ()), label=label, **_style(place))
        doubling_x(axes, {int(cores) for cores in machines})
        log_y(axes)
        axes.set_title(f"{name}, p95 within {1000 * p95:g} ms")
        axes.set_xlabel("cores of a machine")
        axes.set_ylabel("sentences/s (modelled)")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5)
    return figure


def latencies(models: Mapping[str, Record]) -> Figure:
    """Quantiles of the latency against the load, a panel for each model."""
    figure, grid = panels(len(models), 2, 2.8)
    for axes, (name, model) in zip(grid, models.items(), strict=True):
        for place, (cores, found) in enumerate(model["latency"].items()):
            for share, line in (("p50", "--"), ("p95", "-")):
                points = [(100 * each["load"], 1000 * each[share]) for each in found]
                label = f"{cores} cores, {share}"
                axes.plot(*zip(*points, strict=True), line, label=label, **_style(place))
        log_y(axes)
        axes.set_title(name)
        axes.set_xlabel("load [% of the highest rate]")
        axes.set_ylabel("latency [ms] (modelled)")
    legend(figure, grid[0])
    return figure


def _doubling(first: int) -> list[int]:
    cores = [first]
    while cores[-1] < _MOST_CORES:
        cores.append(2 * cores[-1])
    return cores


def _style(place: int) -> dict[str, Any]:
    return {"marker": SYMBOLS[place % len(SYMBOLS)], "color": SERIES[place % len(SERIES)]}
