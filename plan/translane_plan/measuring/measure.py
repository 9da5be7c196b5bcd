"""Measures a profile, part by part, and compares a simulation with the server that was measured."""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from translane_plan.errors import PlanError
from translane_plan.measuring.call_costs import AT_ONCE, TEXTS, CallCosts, CallMeter
from translane_plan.measuring.dispatch_costs import dispatch_cost
from translane_plan.measuring.memory_costs import memory_of
from translane_plan.measuring.processes import are_grouped_by_session, on_cores
from translane_plan.measuring.replica_costs import ReplicaMeter
from translane_plan.measuring.samples import read_samples
from translane_plan.measuring.server import MeasuredServer
from translane_plan.measuring.turns import measured_turns
from translane_plan.profile import Length, LoopCosts, Profile, ReplicaCosts
from translane_plan.settings import MeasureSettings
from translane_plan.simulation.load import waiting_callers
from translane_plan.simulation.shape import Shape
from translane_plan.simulation.simulation import simulate
from translane_server.bundle_choice import choose_bundle

_ROWS = 64  # of the server that is measured
# Shares of the time for each part.
_OF_REPLICA, _OF_LONE, _OF_BUSY, _OF_TEXTS = 0.5, 0.2, 0.15, 0.15
_CHECKED = 4000  # requests of the simulation that is compared
_PACKAGES = ("translane", "onnxruntime", "onnxruntime-gpu", "grpcio", "numpy")
_CPUINFO = Path("/proc/cpuinfo")

_MOST_AFTER = 0.9  # of the work on a message

Log = Callable[[str], None]


class Costs(NamedTuple):
    """The parts of a profile that the costs of calls decide; see `Profile`."""

    replica: ReplicaCosts
    front_end: LoopCosts
    caller: LoopCosts
    delay: float


def measured_profile(settings: MeasureSettings, environ: Mapping[str, str], log: Log) -> Profile:
    """Measure what sentences of a model cost on this machine.

    The replica, and the server, run on the first of the cores that this program may use; the load generator runs on
    the last one, if there are several.

    Args:
        settings: what to measure.
        environ: the environment of this program.
        log: called with a line about each part.

    Raises:
        PlanError: the model cannot be measured.
        StartupError: the bundle is wrong, or does not run.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        raise PlanError("processes can be measured on Linux alone")
    bundle, device = choose_bundle(settings.bundle, settings.device)
    samples = read_samples(bundle, settings.texts, settings.source_language, settings.target_language)
    manifest, tokens = bundle.manifest, samples.limits.tokens
    own, callers = _divided_cores(settings.threads)
    with on_cores(own):
        log(f"replica: {settings.threads} threads on cores {_listed(own)} …")
        meter = ReplicaMeter(bundle, device, settings.threads, samples)
        lengths = meter.lengths()
        replica = meter.costs(settings.seconds * _OF_REPLICA)
        run_cost, is_exact = meter.run_cost, meter.counts_processor_time
        meter.close()
        choice = dispatch_cost()
    turns = measured_turns(min(own))
    log("server: calls alone, under load, and of several texts …")
    flags = ["--device", device, "--threads", str(settings.threads), "--rows", str(_ROWS)]
    model, request = str(bundle.folder.resolve()), next(samples.requests(1, []))
    with on_cores(own):
        server = MeasuredServer(model, [*flags, "--replicas", "1"], environ, request)
    with on_cores(callers), server:  # affinity first: gRPC's threads inherit it
        calls = CallMeter(server, samples)
        lone = calls.lone(settings.seconds * _OF_LONE)
        busy = calls.busy(settings.seconds * _OF_BUSY)
        texts = calls.of_texts(settings.seconds * _OF_TEXTS)
        traffic = calls.traffic()
        memory = memory_of(server, manifest, tokens, replicas=1, rows=_ROWS)
        start, nice = server.start, not are_grouped_by_session(server.pid)
    if settings.threads == 1 and device == "cpu":  # replicas of one thread share the weights
        with on_cores(own):
            two = MeasuredServer(model, [*flags, "--replicas", "2"], environ, request)
        with on_cores(callers), two:
            shared = memory_of(two, manifest, tokens, replicas=2, rows=_ROWS)
        memory = shared.model_copy(update={"front_end": memory.front_end})  # of the one that was under load
    by_text = dict(zip((sample.text for sample in samples.samples), lengths, strict=True))
    decoded = statistics.fmean(alone(replica, by_text[sample.text]) for sample in lone.sent[: lone.calls])
    if not is_exact:  # processor time of several threads, or beside a GPU, is not the time of a step
        lone = dataclasses.replace(lone, replica=decoded)
    costs = _costs(replica, choice, decoded, lone, busy, texts, len(own))
    profile = Profile(
        model=manifest.name,
        precision=manifest.precision,
        parameters=manifest.architecture.parameters,
        device=device,
        processor=_processor(),
        versions=_versions(),
        measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        threads=settings.threads,
        run_cost=run_cost,
        source_capacity=tokens.source,
        replica=costs.replica,
        front_end=costs.front_end,
        caller=costs.caller,
        delay=costs.delay,
        turns=turns,
        start=start,
        memory=memory,
        traffic=traffic,
        lengths=lengths,
    )
    _compare(profile, busy, own, callers, log, nice=nice)
    return profile


def _costs(
    replica: ReplicaCosts,
    choice: float,
    decoded: float,
    lone: CallCosts,
    busy: CallCosts,
    texts: CallCosts,
    cores: int,
) -> Costs:
    """The costs of each part, from the costs of calls.

    A lone call wakes the caller's core twice, by the clock and by the answer. It wakes a server's only core once: the
    front end and the replica take turns on it until the answer has gone. If the server has several cores, it wakes one
    for the request, one for the replica, and one for the answer. What its latency has beyond all processor time is the
    delay of all wakes but the first. If its latency is shorter than all processor time, part of that time comes after
    the messages have gone: of the caller's, and of the front end's work on the answer.

    Args:
        replica: costs without waking.
        choice: of each replica that the dispatcher chooses from.
        decoded: the work of a replica on a lone sentence, by these costs.
        lone: lone calls.
        busy: calls of one text under load.
        texts: calls of several texts under load.
        cores: cores of the server.
    """
    of_front_end, of_replica = (1, 0) if cores == 1 else (2, 1)  # cores that a lone call wakes
    sentence = max(0.0, (texts.front_end - busy.front_end) / (TEXTS - 1))
    beyond = lone.latency - (lone.front_end + lone.replica + lone.caller)
    after = min(_MOST_AFTER, max(0.0, -beyond) / (lone.front_end / 2 + lone.caller))
    return Costs(
        replica=replica.model_copy(update={"wake": max(0.0, lone.replica - decoded)}),
        front_end=LoopCosts(
            request=max(0.0, busy.front_end - sentence),
            sentence=sentence,
            dispatch=choice,
            wake=max(0.0, lone.front_end - busy.front_end) / of_front_end,
            threads=busy.threads,
            after=after,
        ),
        caller=LoopCosts(request=busy.caller, wake=max(0.0, lone.caller - busy.caller) / 2, after=after),
        delay=max(0.0, beyond) / (of_front_end + of_replica + 1),
    )


def alone(costs: ReplicaCosts, length: Length) -> float:
    """The work of a replica on a sentence that meets no other [seconds], without the cost of waking."""
    steps = length.target * (costs.steps.at(1) + costs.key * (length.source + (length.target + 1) / 2))
    return costs.turn + costs.sentence + costs.encodes.at(length.source) + steps


def _compare(profile: Profile, busy: CallCosts, own: set[int], callers: set[int], log: Log, *, nice: bool) -> None:
    """Say how near a simulation of the calls under load comes to the measurement."""
    shape = Shape(len(own), ((_ROWS,),), caller_processes=1, caller_cores=0 if own & callers else 1, nice=nice)
    found = simulate(profile, shape, waiting_callers(AT_ONCE, _CHECKED, profile.lengths, connections=1))
    difference = found.rate / busy.rate - 1
    log(f"{AT_ONCE} callers get {busy.rate:.1f} sentences/s, and {found.rate:.1f} simulated: {difference:+.0%}")


def _divided_cores(threads: int) -> tuple[set[int], set[int]]:
    """The cores of the server, and those of the load generator."""
    cores = sorted(os.sched_getaffinity(0))
    own = set(cores[: max(1, min(threads, len(cores) - 1))])
    return own, {cores[-1]}


def _listed(cores: set[int]) -> str:
    return ", ".join(map(str, sorted(cores)))


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """The name of the processor, where the system tells it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "an unknown processor"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "an unknown processor"
    )
