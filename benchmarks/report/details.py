"""The tables and pictures of all that was measured, as lines of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.machine import has_vnni
from benchmarks.report import bounds, growth, offline_tables, plots, serving_tables, student_tables
from benchmarks.report.pictures import Pictures
from benchmarks.report.results import TITLES, Record, Results, circumstances, told_machine


def lines(results: Results, pictures: Pictures) -> Iterator[str]:
    """What was measured on a device, and what was not."""
    found = [record for records in results.records.values() for record in records if "machine" in record]
    machines = dict.fromkeys(map(told_machine, found))
    if machines:
        yield from (f"Measured on {'; and on '.join(machines)}.", "")
    if verdicts := bounds.verdicts(results):
        yield from ("### Bounds", "", *bounds.table(verdicts), "")
    for record in results["offline"]:
        if record["cells"]:
            yield from (_heading("offline"), "", *_offline(record, pictures))
            if not has_vnni(record["machine"]["processor"]) and record.get("device") != "cuda":
                yield from ("This processor has no VNNI: the table shows what such processors reach.", "")
    for record in results["without_vnni"]:
        if record["cells"]:
            yield from (_heading("without_vnni"), "", *_offline(record, None))
    for record in results["serving"]:
        if record["cells"]:
            yield from (_heading("serving"), "", *_serving(record, pictures))
    for record in results["students"]:
        yield from (_heading("students"), "", *student_tables.lines(record), "")
    if results["front-ends"]:
        yield from (
            _heading("front-ends"),
            "",
            "[front-ends.md](front-ends.md) has what a request costs each process.",
            "",
        )
    for record in results["scaling"]:
        yield from (_heading("scaling"), "", *growth.scaling(record, pictures))
    if results["products"]:
        yield from (_heading("products"), "", *growth.products(results["products"], pictures))
    if results["steps"]:
        yield from (_heading("steps"), "", *growth.steps(results["steps"]))
    for record in results["soak"]:
        yield from (_heading("soak"), "", *growth.soak(record, pictures))
    if results.missing:
        yield from ("### Not measured", "", *(f"- {sentence}" for sentence in results.missing), "")


def _offline(record: Record, pictures: Pictures | None) -> Iterator[str]:
    """The table of offline throughput, under pictures of it where there is a place for them."""
    yield circumstances(record)
    if "sentences" in record:
        yield f"The sentences, or their lengths, are those of `{record['sentences']}`."
    if record.get("clock") == "processor":
        yield "Processor time counts here, not the time that passed, and only workers of one thread took part."
    yield ""
    if pictures:
        for model, cells in _by_model(record["cells"]).items():
            text = f"Target tokens per second of Translane and CTranslate2 on the {model} model, by batch"
            yield from pictures.shown(f"offline-{model}", plots.offline(cells), text)
    yield offline_tables.header(record["machine"])
    for cell in record["cells"]:
        yield offline_tables.row(cell)
    yield ""


def _serving(record: Record, pictures: Pictures) -> Iterator[str]:
    yield from (circumstances(record), "")
    for model, cells in _by_model(record["cells"]).items():
        text = f"Latency of both servers on the {model} model against the rate of sentences that arrive"
        yield from pictures.shown(f"latency-{model}", plots.latency(cells, record["bound"]), text)
    yield from (*serving_tables.tables(record), "")


def _heading(name: str) -> str:
    return f"### {TITLES[name]}"


def _by_model(cells: Sequence[Record]) -> dict[str, list[Record]]:
    models = dict.fromkeys(cell["model"] for cell in cells)
    return {model: [cell for cell in cells if cell["model"] == model] for model in models}
