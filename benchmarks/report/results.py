"""The records that benchmarks write, and that reports are made of."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import has_vnni

COMMANDS = {
    "offline": "python -m benchmarks.runs.offline",
    "without_vnni": "python -m benchmarks.runs.avx2 python -m benchmarks.runs.offline -o runs/bench/without_vnni.json",
    "serving": "python -m benchmarks.runs.serving",
    "growth": "python -m benchmarks.runs.growth",
    "products": "python -m benchmarks.runs.products BUNDLE",
    "soak": "PYTHONPATH=tests python -m reliability.soak -o runs/bench/soak.json",
}
TITLES = {
    "offline": "Offline throughput",
    "without_vnni": "Offline throughput without VNNI",
    "serving": "Servers under load",
    "growth": "How steps, memory and start-up grow",
    "products": "Steps over their matrix products",
    "soak": "Memory over many requests",
}
ENGINES = ("translane", "ctranslate2")
ON_CUDA = ("offline", "growth")  # what is measured there
BUSY = 0.05  # share of the processors: readers are warned where other programs used more
LOST = 0.995  # ratios below are less than 1 to two decimals

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """The records of each benchmark, and a sentence in `missing` for each benchmark without records."""

    records: Mapping[str, list[Record]]
    missing: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> list[Record]:
        return self.records.get(name, [])


def write(path: Path, record: Record) -> None:
    """Write a record, in place of the one that was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")


def read(folder: Path, device: str = "cpu") -> Results:
    """All `offline.json`, `products-….json` and so on of a folder. A file that cannot be read counts as missing."""
    records: dict[str, list[Record]] = {}
    missing = []
    for name in COMMANDS if device == "cpu" else ON_CUDA:
        found = []
        for path in sorted((*folder.glob(f"{name}.json"), *folder.glob(f"{name}-*.json"))):
            if name == "offline" and path.stem != name:
                continue  # runs of its own, which somebody kept
            try:
                record = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                missing.append(f"{path.name} is not JSON: {error}.")
                continue
            model = path.stem.removeprefix(name).removeprefix("-")
            if model:  # the name and precision by which the benchmarks know it
                record["model"], _, record["precision"] = model.rpartition("-")
            found.append(record)
        records[name] = found
        if name == "without_vnni" and not any(has_vnni(one["machine"]["processor"]) for one in records["offline"]):
            records[name] = []  # the offline benchmark shows what such processors reach
        elif not found:
            missing.append(f"{TITLES[name]}: `{COMMANDS[name]}` has written nothing yet.")
        elif name in ("offline", "without_vnni", "serving") and not found[0]["cells"]:
            missing.append(f"{name}.json has no cell yet: it was broken off before the first one.")
    return Results(records, missing)


def name_of(cell: Record) -> str:
    """What a cell compares, such as "demo int8 greedy"."""
    return f"{cell['model']} {cell['precision']} {cell['search']}"


def alone(cell: Record) -> tuple[float, float]:
    """The median latency of a sentence alone, over the rounds, of both engines [ms]; infinite without an answer."""
    ours, theirs = (_median([each["latency_seconds"]["p50"] for each in cell["grid"][0][name]]) for name in ENGINES)
    return 1000 * ours, 1000 * theirs


def _median(values: Sequence[float | None]) -> float:
    return statistics.median(math.inf if value is None else value for value in values)


def over(more: float, less: float) -> float:
    """A quotient; infinite where only the divisor is 0, and 1 where both are 0 or both are infinite times."""
    if math.isinf(less):
        return 1.0 if math.isinf(more) else 0.0
    return more / less if less else math.inf if more else 1.0


def told(value: float | None) -> str:
    """A ratio with two decimals, above 1 where Translane is faster or takes less; bold where it is lost."""
    if value is None:
        return "–"
    text = "∞" if math.isinf(value) else f"{value:.2f}"
    return f"**{text}**" if value < LOST else text


def told_machine(record: Record) -> str:
    """Processor, cores, system and versions of what was measured on."""
    machine = record["machine"]
    versions = {"Python": machine.get("python"), **machine["versions"]}
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    gpus = "".join(f"GPU {gpu}; " for gpu in machine.get("gpus", []) if record.get("device") == "cuda")
    return f"{gpus}{machine['processor']}, {machine['cores']} cores, {machine.get('system', 'system unknown')}: {told}"


def circumstances(record: Record) -> str:
    """When something was measured, and how busy the machine was, in a sentence or two."""
    usage = record["usage"]
    told = f"Measured {record['machine']['time']} in {usage['seconds'] / 60:.0f} minutes; others used"
    told += f" {usage['others']:.0%} of the processors' time."
    if usage["others"] > BUSY:
        told += (
            " **The machine was in use**: ratios of what took turns still tell something, times and rates by themselves"
            " do not."
        )
    return told
