"""Write what the benchmarks measured into docs/benchmarks.md: short tables, and then all tables, pictures and bounds.

    python -m benchmarks.report
    python -m benchmarks.report --device cuda           # what was measured on a GPU, in its own part of the page

Reads the JSON files of `runs/bench`, or `runs/bench/cuda`, and replaces what is between the markers of the page: the
short table of each kind of processors that something was measured on, and the details. What was not measured is named
there; the rest of the page is left alone, and so is the short table of another kind of processors.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib as mpl

from benchmarks import places
from benchmarks.report import details, plots, summary
from benchmarks.report.marked_part import replace_between
from benchmarks.report.pictures import Pictures
from benchmarks.report.results import Results, read

BEGIN = "<!-- {part}: begin; `python -m benchmarks.report` writes what is between these lines -->"
END = "<!-- {part}: end -->"


def replace_part(page: str, part: str, lines: str) -> str:
    """The page with another generated part.

    Raises:
        ValueError: the page has no markers of this part.
    """
    return replace_between(page, BEGIN.format(part=part), END.format(part=part), lines)


def rewritten(page: str, results: Results, device: str, pictures: Pictures) -> str:
    """The page with the parts of a device written anew; the pictures are written, too.

    Raises:
        ValueError: the page has no markers of a part.
    """
    for family in summary.FAMILIES if device == "cpu" else ():
        if records := summary.records_of(results, family):
            page = replace_part(page, family, "\n".join(summary.lines(records, summary.scaling_of(results, family))))
    with mpl.rc_context(plots.STYLE):
        return replace_part(page, device, "\n".join(details.lines(results, pictures)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="whose part of the page is written")
    parser.add_argument("--folder", type=Path, help="of the JSON files; runs/bench, or runs/bench/cuda")
    parser.add_argument("--page", type=Path, default=places.ROOT / "docs" / "benchmarks.md")
    arguments = parser.parse_args()
    results = read(arguments.folder or places.result("", arguments.device).parent, arguments.device)
    folder = arguments.page.parent / "benchmarks"
    pictures = Pictures(folder, folder.name, "" if arguments.device == "cpu" else f"{arguments.device}-")
    try:
        page = rewritten(arguments.page.read_text(encoding="utf-8"), results, arguments.device, pictures)
    except ValueError as error:
        sys.exit(f"{arguments.page}: {error}")
    arguments.page.write_text(page, encoding="utf-8")
    for sentence in results.missing:
        print(sentence, file=sys.stderr)
    print(f"written: {arguments.page}")


if __name__ == "__main__":
    main()
