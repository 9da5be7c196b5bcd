"""What variants of attention cost, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.report.results import Record, circumstances

KIB, MIB = 1024, 1024**2
WAYS = ("plain", "fused", "blocks")


def of_variants(record: Record) -> Iterator[str]:
    """The lines of the table of `benchmarks.runs.attention`."""
    cases = list(record["plain"])
    yield from (_measured_on(record), "")
    yield f"| variant | {' | '.join(cases)} | KiB a row and layer | × plain |"
    yield f"|---|{'---:|' * (len(cases) + 2)}"
    milliseconds = " | ".join(f"{1000 * seconds:.2f} ms" for seconds in record["plain"].values())
    yield f"| plain | {milliseconds} | {record['row_bytes'] / KIB:,.0f} | 1 |"
    for name, found in record["variants"].items():
        ratios = " | ".join(f"{found['ratios'][case]:.2f}" for case in cases)
        share = found["row_bytes"] / record["row_bytes"]
        yield f"| {name} | {ratios} | {found['row_bytes'] / KIB:,.0f} | {share:.3g} |"


def of_training(record: Record) -> Iterator[str]:
    """The lines of the tables of `benchmarks.runs.training_attention`."""
    yield from (_measured_on(record), "")
    yield f"| formula | tokens | {' | '.join(f'{way}: ms | MiB' for way in WAYS)} |"
    yield f"|---|---:|{'---:|' * (2 * len(WAYS))}"
    for formula, by_length in record["ways"].items():
        for length, by_way in by_length.items():
            cells = " | ".join(_cell(by_way.get(way)) for way in WAYS)
            yield f"| {formula} | {int(length):,} | {cells} |"
    if record["blocks"]:
        yield ""
        sizes = list(next(iter(record["blocks"].values())))
        yield f"| tokens | {' | '.join(f'blocks of {int(size):,}: ms | MiB' for size in sizes)} |"
        yield f"|---:|{'---:|' * (2 * len(sizes))}"
        for length, by_size in record["blocks"].items():
            yield f"| {int(length):,} | {' | '.join(_cell(by_size[size]) for size in sizes)} |"


def _cell(found: Record | None) -> str:
    if found is None:
        return "– | –"
    return f"{1000 * found['seconds']:,.0f} | {found['bytes'] / MIB:,.0f}"


def _measured_on(record: Record) -> str:
    machine = record["machine"]
    versions = ", ".join(
        f"{name} {machine['versions'][name]}" for name in ("onnxruntime", "torch") if name in machine["versions"]
    )
    return f"{machine['processor']}, one thread, processor time; {versions}. {circumstances(record)}"
