"""The table of a corpus that was translated through kills, from the record of the run."""

from __future__ import annotations

from benchmarks.report.results import Record


def is_right(record: Record) -> bool:
    """Whether each record of the corpus is there, once, with the translation that its text has alone."""
    return not any(row["lost"] or row["extra"] or row["wrong"] for row in record["rows"])


def corpus_table(record: Record) -> str:
    """Return the table, and a sentence about the machine."""
    (row,) = record["rows"]
    summary, machine = row["summary"], record["machine"]
    rows = {
        "records; different texts": f"{row['records']:,}; {row['different']:,}",
        "kills": f"{row['kills']}",
        "records that are lost; too many; wrong": f"{row['lost']}; {row['extra']}; {row['wrong']}",
        "time of all starts together": f"{row['seconds']:.0f} s",
        "different texts translated, after the last kill": _rate(
            summary["sources_translated"], summary["translating_seconds"]
        ),
        "records written": _rate(summary["records"], summary["writing_seconds"]),
        "most memory of the command; with its replicas": f"{_mib(row['memory_of_the_command'])};"
        f" {_mib(row['memory_of_all'])}",
    }
    table = ["| | |", "|---|---:|", *(f"| {what} | {figure} |" for what, figure in rows.items())]
    others = record["usage"]["others"]
    where = f"On {machine['processor']}, {machine['cores']} cores. Other programs had {others:.0%} of them meanwhile."
    return "\n".join([*table, "", where])


def _rate(number: int, seconds: float) -> str:
    return f"{number / seconds:,.0f} a second" if seconds else "–"


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
