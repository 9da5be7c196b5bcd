"""Tables of where decoder steps' time goes, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MICRO_IN_MILLI = 1000


def of_models(record: Mapping[str, Any]) -> str:
    """One table for each model: rows of a step down, what its nodes are for across [ms]."""
    machine, usage = record["machine"], record["usage"]
    versions = machine["versions"]
    parts = [
        f"Measured {machine['time']} on {machine['processor']}, one thread, onnxruntime"
        f" {versions.get('onnxruntime', '')}; other programs used {usage['others']:.0%} of the processors' time."
        " Times are in milliseconds of a processor."
    ]
    for name, times in record["models"].items():
        parts += ["", f"### {name.replace('-', ', ')}", "", _table(times)]
    return "\n".join(parts)


def _table(times: Mapping[Any, Mapping[str, Any]]) -> str:
    roles = [
        role for role in next(iter(times.values()))["roles"] if any(each["roles"][role] for each in times.values())
    ]
    head = ["rows", "nodes", "step", *roles, "rest", "step / products"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    for rows, found in times.items():
        step, inside = found["step"], sum(found["roles"].values())
        milliseconds = [step, *(found["roles"][role] for role in roles), max(0.0, step - inside)]
        cells = [str(rows), str(found["nodes"]), *(f"{each / _MICRO_IN_MILLI:.3f}" for each in milliseconds)]
        lines.append("| " + " | ".join([*cells, f"{step / found['roles']['products']:.2f}"]) + " |")
    return "\n".join(lines)
