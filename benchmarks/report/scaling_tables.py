"""The tables of the scaling benchmark, as Markdown."""

from __future__ import annotations

from benchmarks.report.results import Record

ROWS_OF_LENGTHS = 32  # at which steps are measured against the length of translations


def tables(title: str, found: Record) -> str:
    """What was measured of a model, as Markdown."""
    lines = [f"### {title}", ""]
    for name, column in (("rows", "rows"), ("lengths", f"tokens, {ROWS_OF_LENGTHS} rows")):
        lines += [f"| {column} | Translane step ms | CTranslate2 step ms | ratio |", "|---:|---:|---:|---:|"]
        ours, theirs = found[name]["translane"], found[name]["ctranslate2"]
        lines += [
            f"| {key} | {ours[key] * 1e3:.2f} | {theirs[key] * 1e3:.2f} | {theirs[key] / ours[key]:.2f} |"
            for key in ours
        ]
        lines.append("")
    if found["memory"]:
        lines += ["| rows | Translane MB | CTranslate2 MB |", "|---:|---:|---:|"]
    lines += [
        f"| {rows} | {taken['translane'] / 1e6:,.0f} | {taken['ctranslate2'] / 1e6:,.0f} |"
        for rows, taken in found["memory"].items()
    ]
    start = found["start"]
    lines += ["", f"Start-up: Translane {start['translane']:.2f} s, CTranslate2 {start['ctranslate2']:.2f} s.", ""]
    return "\n".join(lines)
