"""What each benchmark measured, as the lines of a page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.report.results import ENGINES, Record, alone, circumstances, name_of, over, told

_MILLI, _MEGA = 1e3, 1e6


def offline(record: Record) -> Iterator[str]:
    """Target tokens/s, and how many times as many as CTranslate2's."""
    yield circumstances(record)
    if "sentences" in record:
        yield f"The sentences, or their lengths, are those of `{record['sentences']}`."
    yield from ("Translane's tokens/s, and in parentheses how many times as many as CTranslate2's.", "")
    batches = list(dict.fromkeys(cell["batch"] for cell in record["cells"]))
    yield f"| model, precision, search | {' | '.join(f'batch {batch}' for batch in batches)} |"
    yield f"|---|{'---:|' * len(batches)}"
    rows: dict[str, dict[int, str]] = {}
    for cell in record["cells"]:
        rows.setdefault(name_of(cell), {})[cell["batch"]] = _both(*(cell[name]["rate"] for name in ENGINES), decimals=0)
    for name, cells in rows.items():
        yield f"| {name} | {' | '.join(cells.get(batch, '–') for batch in batches)} |"
    others = [
        f"{name_of(cell)} batch {cell['batch']} {cell['hugging_face']['rate']:,.0f}"
        for cell in record["cells"]
        if cell.get("hugging_face")
    ]
    if others:
        yield from ("", f"Hugging Face's `generate` [tokens/s]: {', '.join(others)}.")


def serving(record: Record) -> Iterator[str]:
    """The highest rates, and the latency of a sentence alone."""
    yield circumstances(record)
    yield f"The highest rate keeps 95% within {record['bound'] * 1000:g} ms. In parentheses: over CTranslate2's."
    yield from ("", "| model, precision, search | highest rate [1/s] | p50 alone [ms] |", "|---|---:|---:|")
    for cell in record["cells"]:
        highest = _both(*(cell["highest_rate"][name] for name in ENGINES), decimals=1)
        yield f"| {name_of(cell)} | {highest} | {_both(*alone(cell), decimals=1, less=True)} |"


def growth(record: Record) -> Iterator[str]:
    """How steps, memory and start-up grow, and how they compare."""
    found = {name.replace("-", ", "): each for name, each in record.items() if isinstance(each, dict)}
    models = {title: each for title, each in found.items() if "rows" in each}  # {"demo, fp32": {…}}
    if not models:
        return
    yield circumstances(record)
    library = record.get("library", "its own kernels")
    yield f"One worker of {_counted(record['threads'], 'thread')} each; CTranslate2 multiplies with {library}."
    yield "A cell has Translane's value, and CTranslate2's over it: bold where Translane takes more."
    if record["threads"] == 1 and record.get("device", "cpu") == "cpu":
        yield "A step's time is processor time."
    yield ""
    rows = {title: _by_key(found["rows"]) for title, found in models.items()}
    yield from _of_models("step [ms], rows", rows, _MILLI, 2)
    if all(found["memory"] for found in models.values()):
        memory = {title: _ends(found["memory"]) for title, found in models.items()}
        yield from _of_models("MB, rows", memory, 1 / _MEGA, 0)
    yield from _of_models("start-up [s]", {title: {"": found["start"]} for title, found in models.items()}, 1, 2)


def products(records: Sequence[Record]) -> Iterator[str]:
    """Steps over their matrix products."""
    on = _counted(records[0]["threads"], "thread")
    yield f"The products alone, run by ONNX Runtime on {on} over as many rows, are what no step can be faster than."
    yield "A cell has how many times as long the step takes, and the step's time [ms]."
    yield ""
    columns = {f"{record['model']}, {record['precision']}": record["rows"] for record in records}
    yield from _cells(
        "rows", columns, lambda found: f"{over_products(found):.2f} ({_MILLI * _middle(found['step']):.2f})"
    )
    times = sorted(record["machine"]["time"] for record in records)
    others = max(record.get("usage", {}).get("others", 0.0) for record in records)
    yield f"Measured {times[0]} to {times[-1]}; others used up to {others:.0%} of the processors' time."


def over_products(found: Mapping[str, Sequence[float]]) -> float:
    """The median over the rounds of a step's time over that of its products."""
    return statistics.median(step / products for step, products in zip(found["step"], found["products"], strict=True))


def soak(record: Record) -> Iterator[str]:
    """How memory and open files grow while a server translates."""
    first, last = record["first"], record["last"]
    yield from (circumstances(record), "")
    yield (
        f"{_counted(record['requests'], 'request')} of every kind, while workers were killed and versions replaced:"
        f" {first['bytes'] / _MEGA:.0f} MB and {first['files']:.0f} open files in the first fifth of the run,"
        f" {last['bytes'] / _MEGA:.0f} MB and {last['files']:.0f} in its last; growth {record['growth']:.1%}."
    )


def _of_models(head: str, models: Mapping[str, Mapping[str, Mapping[str, float]]], scale: float, decimals: int) -> Any:
    def cell(found: Mapping[str, float]) -> str:
        return _both(*(scale * found[name] for name in ENGINES), decimals=decimals, less=True)

    return _cells(head, models, cell)


def _cells(head: str, models: Mapping[str, Mapping[str, Any]], cell: Callable[[Any], str]) -> Iterator[str]:
    """A table with a column for each model."""
    yield f"| {head} | {' | '.join(models)} |"
    yield f"|---:|{'---:|' * len(models)}"
    for key in dict.fromkeys(key for found in models.values() for key in found):
        yield f"| {key} | {' | '.join(cell(found[key]) if key in found else '–' for found in models.values())} |"
    yield ""


def _by_key(found: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """{engine: {key: value}} turned into {key: {engine: value}}."""
    return {key: {name: found[name][key] for name in ENGINES} for key in found["translane"]}


def _ends(found: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """The first entry and the last one."""
    return {key: found[key] for key in (next(iter(found)), next(reversed(list(found))))}


def _both(ours: float, theirs: float, *, decimals: int, less: bool = False) -> str:
    """Our value, and the ratio of both: above 1 Translane is better. `less`: the smaller value is the better one."""
    ratio = over(theirs, ours) if less else over(ours, theirs)
    noise = min(ours, theirs) < 0  # a difference of times may be all noise
    return f"{ours:,.{decimals}f} ({told(None if noise else ratio)})"


def _middle(values: Sequence[float]) -> float:
    middle: float = sorted(values)[len(values) // 2]
    return middle


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
