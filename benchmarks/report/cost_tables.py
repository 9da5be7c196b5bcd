"""What decoding costs, as Markdown and as JSON values."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.measuring.cases import Case
from benchmarks.measuring.timed import Times


def per_step(seconds: Callable[[Times], float]) -> Callable[[Times], float]:
    """Milliseconds of a step."""
    return lambda times: 1000 * seconds(times) / times.steps


# What a column shows, and with how many decimals.
COLUMNS: Mapping[str, tuple[Callable[[Times], float], int]] = {
    "steps": (lambda times: times.steps, 0),
    "mean rows": (lambda times: times.rows / times.steps, 1),
    "step ms": (per_step(lambda times: times.total), 2),
    "in ONNX Runtime ms": (per_step(lambda times: times.runtime), 2),
    "outside ms": (per_step(lambda times: times.total - times.runtime), 3),
    "outside %": (lambda times: 100 * (1 - times.runtime / times.total), 1),
    "step without encoder ms": (per_step(lambda times: times.total - times.encode), 2),
    "encoder ms": (per_step(lambda times: times.encode), 2),
    "decoder ms": (per_step(lambda times: times.decode), 2),
    "around it ms": (per_step(lambda times: times.total - times.encode - times.decode), 2),
    "elsewhere ms": (per_step(lambda times: times.total - times.encode - times.decode - times.move), 2),
    "copies ms": (per_step(lambda times: times.move), 3),
    "copies %": (lambda times: 100 * times.move / (times.total - times.encode), 1),
    "rows copied within a sentence": (lambda times: times.reordered_rows / times.steps, 1),
    "other rows copied": (lambda times: times.moved_rows / times.steps, 1),
}
COLUMNS_OF = {
    "steps": ("steps", "mean rows", "step ms", "in ONNX Runtime ms", "outside ms", "outside %"),
    "ways": ("step without encoder ms", "decoder ms", "around it ms"),
    "beams": (
        *("steps", "mean rows", "step without encoder ms", "decoder ms", "elsewhere ms", "copies ms", "copies %"),
        *("encoder ms", "rows copied within a sentence", "other rows copied"),
    ),
}


def column_median(column: str, rounds: Sequence[Times]) -> float:
    """The median of a column over the rounds."""
    value, _ = COLUMNS[column]
    return statistics.median(map(value, rounds))


def table(kind: str, cases: Sequence[Case], found: Sequence[Sequence[Times]]) -> list[str]:
    """The lines of a table of medians.

    *× first* says how many times as long a step takes as that of the first case of as many rows, round by round.
    """
    columns = COLUMNS_OF[kind]
    lines = [
        f"| {' | '.join(('case', 'rows', 'sentences × rows', *columns, '× first', 'ms a sentence'))} |",
        f"|---|{'---:|' * (len(columns) + 4)}",
    ]
    step, _ = COLUMNS["step ms" if kind == "steps" else "step without encoder ms"]
    firsts: dict[int, Sequence[Times]] = {}
    for case, rounds in zip(cases, found, strict=True):
        first = firsts.setdefault(case.decoder.rows, rounds)
        values = [f"{column_median(column, rounds):.{COLUMNS[column][1]}f}" for column in columns]
        ratio = statistics.median(step(ours) / step(theirs) for ours, theirs in zip(rounds, first, strict=True))
        alone = statistics.median(map(step, rounds)) * rounds[0].steps / len(case.sentences)
        size = f"{len(case.sentences)} × {case.sentences[0].options.rows}"
        cells = (case.name, str(case.decoder.rows), size, *values, f"{ratio:.2f}", f"{alone:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def record_of(cases: Sequence[Case], found: Sequence[Sequence[Times]]) -> list[dict[str, Any]]:
    """The JSON values of each case: seconds of a step and in ONNX Runtime, the share outside, and all rounds."""
    return [
        {
            "load": case.name,
            "rows": case.decoder.rows,
            "step": column_median("step ms", rounds) / 1000,
            "runtime": column_median("in ONNX Runtime ms", rounds) / 1000,
            "outside": column_median("outside %", rounds) / 100,
            "rounds": [asdict(times) for times in rounds],
        }
        for case, rounds in zip(cases, found, strict=True)
    ]
