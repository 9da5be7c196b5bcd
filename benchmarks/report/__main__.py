"""Write what the benchmarks measured into docs/benchmarks.md: short tables, and then all tables and bounds.

    python -m benchmarks.report
    python -m benchmarks.report --device cuda           # what was measured on a GPU, in its own part of the page

Reads the JSON files of `runs/bench`, or `runs/bench/cuda`, and replaces what is between the markers of the page: the
short table of each kind of processors that something was measured on, and the details. What was not measured is named
there; the rest of the page is left alone, and so is the short table of another kind of processors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import places
from benchmarks.machine import has_vnni
from benchmarks.report import summary, tables
from benchmarks.report.results import TITLES, Results, read, told_machine

BEGIN = "<!-- {part}: begin; `python -m benchmarks.report` writes what is between these lines -->"
END = "<!-- {part}: end -->"
_TABLES = {
    "offline": tables.offline,
    "serving": tables.serving,
    "growth": tables.growth,
    "soak": tables.soak,
}


def details(results: Results) -> Iterator[str]:
    """What was measured on a device, and what was not."""
    found = [record for records in results.records.values() for record in records if "machine" in record]
    if machines := dict.fromkeys(map(told_machine, found)):
        yield from (f"Measured on {'; and on '.join(machines)}.", "")
    yield from summary.bounds(results)
    for name, title in TITLES.items():
        if name == "products":
            if results[name]:
                yield from (f"### {title}", "", *tables.products(results[name]), "")
            continue
        if name == "without_vnni":  # the short table has the ratios, and no real processor these speeds
            continue
        for record in results[name]:
            if record.get("cells", True):
                yield from (f"### {title}", "", "\n".join(_TABLES[name](record)).strip(), "")
                has_none = name == "offline" and not has_vnni(record["machine"]["processor"])
                if has_none and record.get("device") != "cuda":
                    yield from ("This processor has no VNNI: the table shows what such processors reach.", "")
    if results.missing:
        yield from ("### Not measured", "", *(f"- {sentence}" for sentence in results.missing), "")


def replace_part(page: str, part: str, lines: str) -> str:
    """The page with another generated part.

    Raises:
        ValueError: the page has no markers of this part.
    """
    begin, end = BEGIN.format(part=part), END.format(part=part)
    before, found, rest = page.partition(f"{begin}\n")
    _, closed, after = rest.partition(f"{end}\n")
    if not (found and closed):
        raise ValueError(f"there are no lines {begin!r} and {end!r}")
    return f"{before}{begin}\n\n{lines.strip()}\n\n{end}\n{after}"


def rewritten(page: str, results: Results, device: str) -> str:
    """The page with the parts of a device written anew.

    Raises:
        ValueError: the page has no markers of a part.
    """
    for family in summary.FAMILIES if device == "cpu" else ():
        if records := summary.records_of(results, family):
            page = replace_part(page, family, "\n".join(summary.lines(records)))
    return replace_part(page, device, "\n".join(details(results)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="whose part of the page is written")
    parser.add_argument("--folder", type=Path, help="of the JSON files; runs/bench, or runs/bench/cuda")
    parser.add_argument("--page", type=Path, default=places.ROOT / "docs" / "benchmarks.md")
    arguments = parser.parse_args()
    results = read(arguments.folder or places.result("", arguments.device).parent, arguments.device)
    try:
        page = rewritten(arguments.page.read_text(encoding="utf-8"), results, arguments.device)
    except ValueError as error:
        sys.exit(f"{arguments.page}: {error}")
    arguments.page.write_text(page, encoding="utf-8")
    for sentence in results.missing:
        print(sentence, file=sys.stderr)
    print(f"written: {arguments.page}")


main()
