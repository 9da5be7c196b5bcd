"""How far the simulation of `translane-plan` is to be trusted, and what it says of more cores than there are here.

    python -m benchmarks.runs.capacity --base FILE           # FILE: a profile of a model of base size
    python -m benchmarks.runs.capacity --base FILE --write   # into docs/scaling.md
    python -m benchmarks.runs.capacity --only model          # from the profile of the last run

*Profile*: `translane-plan measure` of the bundled model, with real sentences. *Check*: a server of one replica on one
core gets sentences at several rates from a load generator on another core, and the simulation gets the same sentences
at the same times. *Dispatcher*: what a sentence costs the server's dispatcher, by the number of its replicas. *Model*:
what the simulation says of 4 to 1,000 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.machine import describe
from benchmarks.measuring.capacity_check import Checked, check
from benchmarks.measuring.capacity_model import P95, modelled
from benchmarks.models.workload import read_texts
from benchmarks.places import DEMO, ROOT, SENTENCES, result
from benchmarks.report.capacity_tables import check_table, dispatch_table, model_tables, profile_table
from benchmarks.report.marked_part import write_part
from benchmarks.report.pictures import Pictures
from benchmarks.report.plots import STYLE
from translane_plan.measuring.call_costs import CallMeter
from translane_plan.measuring.dispatch_costs import sentence_cost
from translane_plan.measuring.measure import measured_profile
from translane_plan.measuring.processes import are_grouped_by_session, on_cores
from translane_plan.measuring.samples import read_samples
from translane_plan.measuring.server import MeasuredServer
from translane_plan.profile import Profile, read_profile
from translane_plan.settings import MeasureSettings
from translane_plan.simulation.shape import Shape
from translane_server.bundle import load_bundle

PAGE = ROOT / "docs" / "scaling.md"
COMMAND = "python -m benchmarks.runs.capacity --write"
SHARES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)  # of what callers get who wait
ROUNDS, SECONDS, PROBE = 2, 18.0, 6.0
ROWS = 64
DISPATCHED = (1, 4, 16, 64, 256, 1024)  # replicas
PARTS = ("profile", "check", "dispatch", "model")
NAMES = {"demo": "profile", "base": "base"}  # of models, and where the record has their profiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, nargs="+", help="take the rest from the last run")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each rate and round of the check")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the check")
    parser.add_argument("--measure-seconds", type=float, default=60.0, help="of the profile")
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="pairs whose sources are translated")
    parser.add_argument("--base", type=Path, help="profile of a model of base size")
    parser.add_argument("--write", action="store_true", help=f"write tables and pictures into {PAGE.name}")
    arguments = parser.parse_args()
    if not 1 <= arguments.rounds <= 20 or not 2 <= arguments.seconds <= 120:
        parser.error("--rounds are 1 to 20, and --seconds 2 to 120")
    path = result("capacity")
    path.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    parts = arguments.only or PARTS
    if "profile" in parts:
        found["profile"] = json.loads(measure(arguments.measure_seconds, arguments.sentences).model_dump_json())
        found["machine"] = describe()
        save(path, found)
    if arguments.base:
        found["base"] = json.loads(read_profile(arguments.base).model_dump_json())
    if "profile" not in found:
        parser.error(f"--only takes the rest from {path}, which lacks a profile")
    profile = Profile.model_validate(found["profile"])
    if "base" in found:  # random weights end no sentence, so both models get sentences of the same lengths
        found["base"]["lengths"] = found["profile"]["lengths"]
    if "check" in parts:
        found["check"] = []
        for each in checked(profile, arguments.rounds, arguments.seconds, arguments.sentences):
            found["check"].append(each.as_json())
            save(path, found)  # what a run that is broken off has found is kept
    if "dispatch" in parts:
        found["dispatch"] = {str(replicas): min(sentence_cost(replicas) for _ in range(5)) for replicas in DISPATCHED}
        save(path, found)
    if "model" in parts:
        profiles = {name: Profile.model_validate(found[key]) for name, key in NAMES.items() if key in found}
        found["model"] = {name: modelled(each) for name, each in profiles.items()}
        save(path, found)
    tables = {"profile": profile_table(found), "check": check_table(found), "dispatcher": dispatch_table(found)}
    if "model" in found:
        pictures = Pictures(PAGE.parent / "scaling" if arguments.write else path.parent / "scaling", "scaling")
        with mpl.rc_context(STYLE):
            tables |= model_tables(found["model"], P95, pictures)
    for name, lines in tables.items():
        print(f"{lines}\n")
        if arguments.write:
            write_part(PAGE, name, COMMAND, lines)


def save(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def measure(seconds: float, file: Path) -> Profile:
    """The profile of the bundled model, with the texts of the benchmarks where they are."""
    with sentences(file) as texts, tempfile.TemporaryDirectory() as folder:
        settings = MeasureSettings(bundle=DEMO, output=Path(folder) / "profile.json", texts=texts, seconds=seconds)
        return measured_profile(settings, os.environ, lambda line: print(line, flush=True))


@contextmanager
def sentences(file: Path) -> Iterator[Path | None]:
    """A file with the texts of a file of pairs; None where there is none."""
    if not file.exists():
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.txt"
        texts.write_text("\n".join(read_texts(file)), encoding="utf-8")
        yield texts


def checked(profile: Profile, rounds: int, seconds: float, file: Path) -> Iterator[Checked]:
    """Compare at several rates, in rounds."""
    cores = sorted(os.sched_getaffinity(0))
    own, callers = {cores[0]}, {cores[-1]}
    with sentences(file) as texts:
        samples = read_samples(load_bundle(DEMO), texts, "", "")
    lengths = dict(zip([sample.text for sample in samples.samples], profile.lengths, strict=True))
    flags = ["--replicas", "1", "--threads", "1", "--rows", str(ROWS), "--device", "cpu"]
    with on_cores(own):
        server = MeasuredServer(str(DEMO), flags, os.environ, next(samples.requests(1, [])))
    nice = not are_grouped_by_session(server.pid)
    shape = Shape(1, ((ROWS,),), caller_processes=1, caller_cores=0 if own & callers else 1, nice=nice)
    with on_cores(callers), server:
        most = CallMeter(server, samples).busy(PROBE).rate
        for number in range(rounds):
            for share in SHARES:
                each = check(
                    server,
                    samples,
                    lengths,
                    profile,
                    shape,
                    rate=share * most,
                    seconds=seconds,
                    seed=number,
                )
                print(
                    f"{share:.0%} of {most:.0f}/s: {dict(each.measured)} simulated {dict(each.simulated)}", flush=True
                )
                yield each


if __name__ == "__main__":
    main()
