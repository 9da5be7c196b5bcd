"""How steps, memory and start-up grow, as lines of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.report import plots, scaling_tables
from benchmarks.report.pictures import Pictures
from benchmarks.report.product_tables import over_products
from benchmarks.report.ratios import told
from benchmarks.report.results import Record, circumstances, models_of

_MILLI = 1000
_MEGA = 1e6


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def scaling(record: Record, pictures: Pictures) -> Iterator[str]:
    """Pictures of how steps, memory and start-up grow, and tables of both engines and their ratio."""
    models = models_of(record)
    if not models:
        return
    yield circumstances(record)
    library = record.get("library", "its own kernels")
    yield f"One worker of {counted(record['threads'], 'thread')} each; CTranslate2 multiplies with {library}."
    yield "A cell has Translane's value, CTranslate2's, and theirs over ours: bold where Translane takes more."
    if record["threads"] == 1 and record.get("device", "cpu") == "cpu":
        yield "A step's time is processor time."
    yield ""
    rows, lengths = ({title: found[name] for title, found in models.items()} for name in ("rows", "lengths"))
    tokens = f"{scaling_tables.ROWS_OF_LENGTHS} rows"
    figure = plots.curves(rows, "rows", "step [ms]", _MILLI, log=True)
    yield from pictures.shown("steps-rows", figure, "Time of a step against rows, of both engines")
    yield from _both("step ms, rows", rows, _MILLI)
    figure = plots.curves(lengths, f"target length [tokens], {tokens}", "step [ms]", _MILLI)
    yield from pictures.shown("steps-length", figure, "Time of a step against the length of the translation")
    yield from _both(f"step ms, {tokens}, tokens", lengths, _MILLI)
    if all(found["memory"] for found in models.values()):
        memory = {title: _by_engine(found["memory"]) for title, found in models.items()}
        figure = plots.curves(memory, "rows", "resident memory [MB]", 1 / _MEGA)
        yield from pictures.shown("memory", figure, "Resident memory against rows, of both engines")
        yield from _both("MB, rows", memory, 1 / _MEGA, decimals=0)
    starts = {title: found["start"] for title, found in models.items()}
    yield from pictures.shown("start-up", plots.start(starts), "Start-up time of both engines")
    yield from _both(
        "start-up s", {title: {n: {"": s} for n, s in found.items()} for title, found in starts.items()}, 1
    )


def _by_engine(memory: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {name: {rows: taken[name] for rows, taken in memory.items()} for name in plots.LABELS}


def _both(head: str, models: Mapping[str, plots.Quantity], scale: float, *, decimals: int = 2) -> Iterator[str]:
    """A table with a row for each value on the axis, and for each model a cell of both engines."""
    yield from _head(head, models)
    for key in dict.fromkeys(key for found in models.values() for key in found["translane"]):
        cells = []
        for found in models.values():
            ours, theirs = (scale * found[name][key] if key in found[name] else None for name in plots.LABELS)
            if ours is None or theirs is None:
                cells.append("–")
                continue
            ratio = told(theirs / ours if min(ours, theirs) > 0 else None)  # a difference of times may be all noise
            cells.append(f"{ours:,.{decimals}f} / {theirs:,.{decimals}f}, {ratio}")
        yield f"| {key} | {' | '.join(cells)} |"
    yield ""


def _head(first: str, models: Iterable[str]) -> Iterator[str]:
    titles = list(models)
    yield f"| {first} | {' | '.join(titles)} |"
    yield "|---:|" + "---:|" * len(titles)


def products(records: Sequence[Record], pictures: Pictures) -> Iterator[str]:
    """A picture and a table of steps over their matrix products."""

    def title(record: Record) -> str:
        return f"{record['model']}, {record['precision']}"

    threads = counted(records[0]["threads"], "thread")
    yield f"The products alone, run by ONNX Runtime on {threads} over as many rows, are what no step can be faster"
    yield "than. A cell has how many times as long the step takes, and the step's time in ms."
    yield ""
    text = "The time of a decoder step over that of its matrix products, against rows"
    yield from pictures.shown("products", plots.products(records, title), text)
    yield from _cells(
        "rows", {title(record): record["rows"] for record in records}, lambda found: _over_products(found)
    )
    yield from (_together(records), "")


def _together(records: Sequence[Record]) -> str:
    """When several records were measured, and how busy the machine was."""
    times = sorted(record["machine"]["time"] for record in records)
    others = max(record.get("usage", {}).get("others", 0.0) for record in records)
    return f"Measured {times[0]} to {times[-1]}; others used up to {others:.0%} of the processors' time."


def _over_products(found: Mapping[str, Any]) -> str:
    return f"{over_products(found):.2f} ({_MILLI * sorted(found['step'])[len(found['step']) // 2]:.2f})"


def steps(records: Sequence[Record]) -> Iterator[str]:
    """A table of steps' times and of the share outside ONNX Runtime, or of what is no wait for the GPU."""
    on_cuda = any(record.get("device") == "cuda" for record in records)
    outside = "not waiting for the GPU" if on_cuda else "outside ONNX Runtime"
    yield f"A cell has the time of a step in ms, and the share of it that is {outside}."
    yield "In *churn*, sentences come and go."
    yield ""
    models = {
        f"{record['model']}, {record['precision']}": {f"{row['load']}, {row['rows']}": row for row in record["steps"]}
        for record in records
    }
    yield from _cells("load, rows", models, lambda row: f"{_MILLI * row['step']:.2f}, {row['outside']:.1%}")
    yield from (_together(records), "")


def _cells(first: str, models: Mapping[str, Mapping[str, Any]], cell: Callable[[Any], str]) -> Iterator[str]:
    """A table with a column for each model."""
    yield from _head(first, models)
    for key in dict.fromkeys(key for found in models.values() for key in found):
        yield f"| {key} | {' | '.join(cell(found[key]) if key in found else '–' for found in models.values())} |"
    yield ""


def soak(record: Record, pictures: Pictures) -> Iterator[str]:
    """How memory and open files grow while a server translates."""
    first, last = record["first"], record["last"]
    yield from (circumstances(record), "")
    yield (
        f"{record['sentences']:,} sentences in {counted(record['requests'], 'request')}, greedy, with beams,"
        f" streamed, cancelled and refused: {first['bytes'] / _MEGA:.0f} MB and {first['files']:.0f} open files"
        f" around a tenth of the run, {last['bytes'] / _MEGA:.0f} MB and {last['files']:.0f} at its end; growth"
        f" {record['growth']:.1%}."
    )
    yield ""
    text = "Resident memory of the server against the sentences it translated"
    yield from pictures.shown("soak", plots.soak(record["samples"]), text)
