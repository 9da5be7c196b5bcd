"""The records that benchmarks write, and that reports are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    "mixed": "python -m benchmarks.runs.mixed",
    "soak": "PYTHONPATH=tests python -m reliability.soak -o runs/bench/soak.json",
}
TITLES = {
    "offline": "Offline throughput",
    "without_vnni": "Offline throughput without VNNI",
    "serving": "Servers under load",
    "growth": "How steps, memory and start-up grow",
    "products": "Steps over their matrix products",
    "mixed": "Plain rows beside a row of another kind",
    "soak": "Memory over many requests",
}
ON_CUDA = ("offline", "growth")  # what is measured there
BUSY = 0.05  # share of the processors: readers are warned where other programs used more

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


def models_of(growth: Record) -> dict[str, Record]:
    """What `growth.json` has of each model: {"demo, fp32": {…}}."""
    return {
        name.replace("-", ", "): found for name, found in growth.items() if isinstance(found, dict) and "rows" in found
    }


def told_machine(record: Record) -> str:
    """Processor, cores, system and versions of what was measured on."""
    machine = record["machine"]
    versions = {"Python": machine.get("python"), **machine["versions"]}
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    gpus = "".join(f"GPU {gpu}; " for gpu in machine.get("gpus", []) if record.get("device") == "cuda")
    return f"{gpus}{machine['processor']}, {machine['cores']} cores, {machine.get('system', 'system unknown')}: {told}"


def circumstances(record: Record) -> str:
    """When something was measured, and how busy the machine was, in a sentence or two."""
    machine, usage = record["machine"], record.get("usage")
    told = f"Measured {machine['time']}"
    if usage is None:
        return (
            f"{told}; load average {machine['load']:.1f} on {machine['cores']} cores. What others used of the"
            " processors was not recorded."
        )
    told += f" in {usage['seconds'] / 60:.0f} minutes; others used {usage['others']:.0%} of the processors' time."
    if usage["others"] > BUSY:
        told += (
            " **The machine was in use**: ratios of what took turns still tell something, times and rates by themselves"
            " do not."
        )
    return told
