"""Write what the benchmarks measured into docs/benchmarks.md: tables, pictures, and which bounds are kept.

    python -m benchmarks.report
    python -m benchmarks.report --device cuda           # what was measured on a GPU, in its own part of the page

Reads the JSON files of `runs/bench`, or `runs/bench/cuda`, and replaces what is between two markers of the page.
What was not measured is named there; the rest of the page is left alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks import places
from benchmarks.report import bounds, offline_tables, plots, product_tables, scaling_tables, serving_tables
from benchmarks.report.marked_part import replace_between
from benchmarks.report.results import TITLES, Record, Results, circumstances, models_of, read, told_machine

BEGIN = "<!-- {device}: begin; `python -m benchmarks.report` writes what is between these lines -->"
END = "<!-- {device}: end -->"


class Page:
    """The lines of a generated part of the page, and the pictures it shows.

    Args:
        results: what was measured.
        pictures: folder to write them to.
        link: the same folder, as seen from the page.
        prefix: of their file names.
    """

    def __init__(self, results: Results, pictures: Path, link: str, prefix: str = "") -> None:
        self._results = results
        self._pictures = pictures
        self._link = link
        self._prefix = prefix

    def lines(self) -> Iterator[str]:
        machines = dict.fromkeys(told_machine(record) for found in self._results.records.values() for record in found)
        if machines:
            yield from (f"Measured on {'; and on '.join(machines)}.", "")
        if found := bounds.verdicts(self._results):
            yield from ("### Bounds", "", *bounds.table(found), "")
        for record in self._results["offline"]:
            if record["cells"]:
                yield from self._offline(record)
        for record in self._results["serving"]:
            if record["cells"]:
                yield from self._serving(record)
        for record in self._results["scaling"]:
            yield from self._scaling(record)
        if self._results["products"]:
            yield from self._products(self._results["products"])
        if self._results["steps"]:
            yield from self._steps(self._results["steps"])
        for record in self._results["soak"]:
            yield from self._soak(record)
        if self._results.missing:
            yield from ("### Not measured", "", *(f"- {sentence}" for sentence in self._results.missing), "")

    def _picture(self, name: str, figure: Any, alternative: str) -> Iterator[str]:
        path = plots.save(figure, self._pictures / f"{self._prefix}{name}.png")
        yield from (f"![{alternative}]({self._link}/{path.name})", "")

    def _offline(self, record: Record) -> Iterator[str]:
        yield from (_heading("offline"), "", circumstances(record))
        if "sentences" in record:
            yield f"The sentences, or their lengths, are those of `{record['sentences']}`."
        if record.get("clock") == "processor":
            yield "Processor time counts here, not the time that passed, and only workers of one thread took part."
        yield ""
        for model, cells in _by_model(record["cells"]).items():
            text = f"Target tokens per second of Translane and CTranslate2 on the {model} model, by batch"
            yield from self._picture(f"offline-{model}", plots.offline(cells), text)
        yield offline_tables.header(record["machine"])
        for cell in record["cells"]:
            yield offline_tables.row(cell)
        yield ""

    def _serving(self, record: Record) -> Iterator[str]:
        yield from (_heading("serving"), "", circumstances(record), "")
        for model, cells in _by_model(record["cells"]).items():
            text = f"Latency of both servers on the {model} model against the rate of sentences that arrive"
            yield from self._picture(f"latency-{model}", plots.latency(cells, record["bound"]), text)
        yield from (*serving_tables.tables(record), "")

    def _scaling(self, record: Record) -> Iterator[str]:
        models = models_of(record)
        if not models:
            return
        threads = _counted(record["threads"], "thread")
        yield from (_heading("scaling"), "", circumstances(record))
        yield f"One worker of {threads} each; CTranslate2 multiplies with {record.get('library', 'its own kernels')}."
        if record["threads"] == 1 and record.get("device", "cpu") == "cpu":
            yield "A step's time is processor time."
        yield ""
        by_rows = {title: found["rows"] for title, found in models.items()}
        figure = plots.curves(by_rows, "rows", "step [ms]", 1e3, log=True)
        yield from self._picture("steps-rows", figure, "Time of a step against rows, of both engines")
        by_length = {title: found["lengths"] for title, found in models.items()}
        figure = plots.curves(
            by_length, f"target length [tokens], {scaling_tables.ROWS_OF_LENGTHS} rows", "step [ms]", 1e3
        )
        yield from self._picture("steps-length", figure, "Time of a step against the length of the translation")
        if all(found["memory"] for found in models.values()):
            by_memory = {title: _by_engine(found["memory"]) for title, found in models.items()}
            figure = plots.curves(by_memory, "rows", "resident memory [MB]", 1e-6)
            yield from self._picture("memory", figure, "Resident memory against rows, of both engines")
        figure = plots.start({title: found["start"] for title, found in models.items()})
        yield from self._picture("start-up", figure, "Start-up time of both engines")
        for title, found in models.items():
            yield scaling_tables.tables(f"{title}, {threads}", found).replace("### ", "#### ", 1)

    def _products(self, records: list[Record]) -> Iterator[str]:
        yield from (_heading("products"), "")
        yield "The products alone, run by ONNX Runtime over as many rows, are what no step can be faster than."
        yield ""

        def title(record: Record) -> str:
            return f"{record['model']}, {record['precision']}, {_counted(record['threads'], 'thread')}"

        text = "The time of a decoder step over that of its matrix products, against rows"
        yield from self._picture("products", plots.products(records, title), text)
        for record in records:
            yield from (
                f"#### {title(record)}",
                "",
                circumstances(record),
                "",
                product_tables.table(record["rows"]),
                "",
            )

    def _steps(self, records: list[Record]) -> Iterator[str]:
        yield from (_heading("steps"), "")
        on_cuda = any(record.get("device") == "cuda" for record in records)
        outside = "not waiting for the GPU" if on_cuda else "outside ONNX Runtime"
        yield f"| model | precision | load | rows | step ms | {outside} % |"
        yield "|---|---|---|---:|---:|---:|"
        for record in records:
            for row in record["steps"]:
                yield (
                    f"| {record['model']} | {record['precision']} | {row['load']} | {row['rows']} |"
                    f" {1000 * row['step']:.2f} | {100 * row['outside']:.1f} |"
                )
        yield from ("", *dict.fromkeys(circumstances(record) for record in records), "")

    def _soak(self, record: Record) -> Iterator[str]:
        yield from (_heading("soak"), "", circumstances(record), "")
        first, last = record["first"], record["last"]
        yield (
            f"{record['sentences']:,} sentences in {_counted(record['requests'], 'request')}, greedy, with beams,"
            f" streamed, cancelled and refused: {first['bytes'] / 1e6:.0f} MB and {first['files']:.0f} open files"
            f" around a tenth of the run, {last['bytes'] / 1e6:.0f} MB and {last['files']:.0f} at its end; growth"
            f" {record['growth']:.1%}."
        )
        yield ""
        text = "Resident memory of the server against the sentences it translated"
        yield from self._picture("soak", plots.soak(record["samples"]), text)


def _heading(name: str) -> str:
    return f"### {TITLES[name]}"


def _by_model(cells: Sequence[Record]) -> dict[str, list[Record]]:
    models = dict.fromkeys(cell["model"] for cell in cells)
    return {model: [cell for cell in cells if cell["model"] == model] for model in models}


def _by_engine(memory: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {name: {rows: taken[name] for rows, taken in memory.items()} for name in plots.LABELS}


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def replace_part(page: str, device: str, lines: str) -> str:
    """The page with another generated part.

    Raises:
        ValueError: the page has no markers of this device.
    """
    return replace_between(page, BEGIN.format(device=device), END.format(device=device), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="whose part of the page is written")
    parser.add_argument("--folder", type=Path, help="of the JSON files; runs/bench, or runs/bench/cuda")
    parser.add_argument("--page", type=Path, default=places.ROOT / "docs" / "benchmarks.md")
    arguments = parser.parse_args()
    results = read(arguments.folder or places.result("", arguments.device).parent, arguments.device)
    pictures = arguments.page.parent / "benchmarks"
    prefix = "" if arguments.device == "cpu" else f"{arguments.device}-"
    with mpl.rc_context(plots.STYLE):
        lines = "\n".join(Page(results, pictures, pictures.name, prefix).lines())
    try:
        page = replace_part(arguments.page.read_text(encoding="utf-8"), arguments.device, lines)
    except ValueError as error:
        sys.exit(f"{arguments.page}: {error}")
    arguments.page.write_text(page, encoding="utf-8")
    for sentence in results.missing:
        print(sentence, file=sys.stderr)
    print(f"written: {arguments.page}")


if __name__ == "__main__":
    main()
