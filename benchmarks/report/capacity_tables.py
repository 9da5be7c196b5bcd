"""Tables of docs/scaling.md: the simulation beside measurements, and what it says of more cores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from benchmarks.report import capacity_plots
from benchmarks.report.pictures import Pictures

_MILLI, _MICRO, _GIBI = 1e3, 1e6, 2**30
_RATES = (10, 100, 1_000, 10_000)  # sentences a second, of the rules of thumb
_MACHINE = "8"  # cores of a machine in the rules of thumb
_LINKS = {"1 Gbit/s": 1e9, "10 Gbit/s": 1e10, "25 Gbit/s": 2.5e10}
_HALF = 0.5  # of a link: no more, so that it has room for bursts

Record = Mapping[str, Any]


def profile_table(found: Record) -> str:
    """The costs of the profiles."""
    profiles = {name: found[key] for name, key in (("demo", "profile"), ("base", "base")) if key in found}
    lines = [f"| what | {' | '.join(profiles)} |", f"|---|{'---:|' * len(profiles)}"]

    def row(name: str, cells: Sequence[str]) -> None:
        lines.append(f"| {name} | {' | '.join(cells)} |")

    each = list(profiles.values())
    row("parameters [millions]", [f"{one['parameters'] / 1e6:.1f}" for one in each])
    row("tokens of a sentence, source → target", [_mean_lengths(one["lengths"]) for one in each])
    row("step of 1 row [ms]", [f"{_step(one, 0) * _MILLI:.2f}" for one in each])
    row("step of 64 rows [ms]", [f"{_step(one, -1) * _MILLI:.2f}" for one in each])
    row("encoder run of 96 tokens [ms]", [f"{_at(one['replica']['encodes'], 96) * _MILLI:.2f}" for one in each])
    for name, part, cost in (
        ("replica: each turn of the loop [µs]", "replica", "turn"),
        ("replica: each sentence [µs]", "replica", "sentence"),
        ("replica: each wake [µs]", "replica", "wake"),
        ("front end: each request [µs]", "front_end", "request"),
        ("front end: each further sentence [µs]", "front_end", "sentence"),
        ("front end: each wake [µs]", "front_end", "wake"),
    ):
        row(name, [f"{one[part][cost] * _MICRO:,.0f}" for one in each])
    row("front end: each sentence and further replica [µs]", [_tiny(one["front_end"]["dispatch"]) for one in each])
    row("delay of a wake [µs]", [f"{one['delay'] * _MICRO:,.0f}" for one in each])
    row("turns on a core: slice / tick [ms]", [_turns(one["turns"]) for one in each])
    row("memory: front end [MB]", [f"{one['memory']['front_end'] / 1e6:,.0f}" for one in each])
    row("memory: weights [MB]", [f"{one['memory']['weights'] / 1e6:,.0f}" for one in each])
    row("memory: replica [MB]", [f"{one['memory']['replica'] / 1e6:,.0f}" for one in each])
    row("memory: row [MB]", [f"{one['memory']['row'] / 1e6:.2f}" for one in each])
    row("bytes of a request, in / out", [_bytes(one["traffic"]) for one in each])
    row("start [s]", [f"{one['start']:.1f}" for one in each])
    return "\n".join(lines)


def check_table(found: Record) -> str:
    """Measurements and simulations of the same requests."""
    if "check" not in found:
        return "Not measured yet."
    lines = [
        "| offered: sentences/s | p50 [ms] | simulated | off by | p95 [ms] | simulated | off by | cores used |"
        " simulated | off by | others used |",
        "|---:|" + "---:|" * 10,
    ]
    ordered = sorted(found["check"], key=lambda each: each["rate"])
    for rate, group in groupby(ordered, key=lambda each: each["rate"]):
        rounds = list(group)
        cells = [f"{rate:,.0f}"]
        for name, scale, digits in (("p50", _MILLI, 1), ("p95", _MILLI, 1), ("cores", 1, 2)):
            measured, simulated = (_median(rounds, side, name) for side in ("measured", "simulated"))
            cells += [f"{scale * measured:.{digits}f}", f"{scale * simulated:.{digits}f}"]
            cells.append(f"{simulated / measured - 1:+.0%}" if measured else "–")
        cells.append(f"{max(each['others'] for each in rounds):.0%}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _verdict(ordered)])


def dispatch_table(found: Record) -> str:
    """What a sentence costs a dispatcher."""
    if "dispatch" not in found:
        return "Not measured yet."
    lines = ["| replicas of a front end | a sentence [µs] | sentences/s at most |", "|---:|---:|---:|"]
    lines += [
        f"| {int(replicas):,} | {cost * _MICRO:,.0f} | {1 / cost:,.0f} |"
        for replicas, cost in sorted(found["dispatch"].items(), key=lambda item: int(item[0]))
    ]
    return "\n".join(lines)


def model_tables(models: Mapping[str, Record], p95: float, pictures: Pictures) -> dict[str, str]:
    """What the simulation says, by the name of the page's part.

    Args:
        models: name of a model → `capacity_model.modelled`.
        p95: the goal [seconds].
        pictures: where pictures are written.
    """
    return {
        "rules of thumb": "\n".join(_rules(models)),
        "rates": "\n".join([*_rates_pictures(models, p95, pictures), *_machines(models)]),
        "front ends": "\n".join([*_front_end_pictures(models, p95, pictures), *_front_ends(models)]),
        "latencies": "\n".join(_latency_pictures(models, pictures)),
        "network": "\n".join(_network(models)),
    }


def _rules(models: Mapping[str, Record]) -> Iterator[str]:
    heads = [f"{name}: machines of {_MACHINE} cores" for name in models]
    yield f"| sentences/s | {' | '.join(heads)} | network, out |"
    yield "|---:|" + "---:|" * (len(models) + 1)
    for rate in _RATES:
        cells = []
        for each in models.values():
            machine = each["machines"][_MACHINE]
            cells.append(f"{math.ceil(rate / machine['rate']):,}" if machine["rate"] else "–")
        sent = max(each["traffic"]["sent"] for each in models.values())
        yield f"| {rate:,} | {' | '.join(cells)} | {8 * sent * rate / 1e6:,.1f} Mbit/s |"


def _rates_pictures(models: Mapping[str, Record], p95: float, pictures: Pictures) -> Iterator[str]:
    text = "Modelled: sentences a second that keep the goal, against cores, for machines of 4, 16 and 64 cores"
    yield from pictures.shown("rates", capacity_plots.rates(models, p95), text)


def _machines(models: Mapping[str, Record]) -> Iterator[str]:
    yield (
        "| model | cores of a machine | front ends | replicas | rows | sentences/s | of each core | memory [GiB]"
        " | busy: front ends | replicas | cores | rows of a step |"
    )
    yield "|---|" + "---:|" * 11
    for name, model in models.items():
        for machine in model["machines"].values():
            busy = " | ".join(f"{machine['busy'][part]:.0%}" for part in ("front_ends", "replicas", "cores"))
            yield (
                f"| {name} | {machine['cores']} | {machine['front_ends']} | {machine['replicas']} | {machine['rows']}"
                f" | {machine['rate']:,.0f} | {machine['rate'] / machine['cores']:,.0f}"
                f" | {machine['memory'] / _GIBI:.1f} | {busy} | {machine['step_rows']:.1f} |"
            )


def _front_end_pictures(models: Mapping[str, Record], p95: float, pictures: Pictures) -> Iterator[str]:
    text = "Modelled: sentences a second that keep the goal, against the cores of a machine, by its front ends"
    yield from pictures.shown("front-ends", capacity_plots.front_ends(models, p95), text)


def _front_ends(models: Mapping[str, Record]) -> Iterator[str]:
    numbers = list(next(iter(models.values()))["front_ends"])
    heads = [f"{number} front end{'' if number == '1' else 's'}" for number in numbers]
    yield f"| model | cores | {' | '.join(heads)} | as many as suit |"
    yield "|---|---:|" + "---:|" * (len(numbers) + 1)
    for name, model in models.items():
        for cores, machine in model["machines"].items():
            rates = [model["front_ends"][number].get(cores) for number in numbers]
            cells = [f"{rate:,.0f}" if rate is not None else "" for rate in rates]
            yield f"| {name} | {cores} | {' | '.join(cells)} | {machine['rate']:,.0f} ({machine['front_ends']}) |"


def _latency_pictures(models: Mapping[str, Record], pictures: Pictures) -> Iterator[str]:
    text = "Modelled: p50 and p95 against the load, for machines of 4 and 64 cores"
    yield from pictures.shown("latencies", capacity_plots.latencies(models), text)


def _network(models: Mapping[str, Record]) -> Iterator[str]:
    yield f"| model | bytes of a request, in / out | {' | '.join(f'half of {link}' for link in _LINKS)} |"
    yield "|---|---:|" + "---:|" * len(_LINKS)
    for name, model in models.items():
        traffic = model["traffic"]
        most = max(traffic["received"], traffic["sent"])
        machine = model["machines"]["64"]
        cells = []
        for speed in _LINKS.values():
            rate = _HALF * speed / (8 * most)
            cores = f", {rate / (machine['rate'] / machine['cores']):,.0f} cores" if machine["rate"] else ""
            cells.append(f"{rate:,.0f}/s{cores}")
        yield f"| {name} | {_bytes(traffic)} | {' | '.join(cells)} |"


def _verdict(checks: Sequence[Record]) -> str:
    """How far the simulation is off, over all rates."""
    off = {
        name: max(
            abs(_median(rounds, "simulated", name) / _median(rounds, "measured", name) - 1)
            for rounds in _by_rate(checks)
        )
        for name in ("p50", "p95", "cores")
    }
    return f"At worst, p50 is off by {off['p50']:.0%}, p95 by {off['p95']:.0%}, and cores by {off['cores']:.0%}."


def _by_rate(checks: Sequence[Record]) -> Iterator[list[Record]]:
    for _, group in groupby(checks, key=lambda each: each["rate"]):
        yield list(group)


def _median(rounds: Sequence[Record], side: str, name: str) -> float:
    return float(statistics.median(each[side][name] for each in rounds))


def _step(profile: Record, place: int) -> float:
    """A step of the first or last measured number of rows, with the keys of a mean sentence."""
    replica, lengths = profile["replica"], profile["lengths"]
    keys = statistics.fmean(source + target / 2 for source, target in lengths)
    rows = replica["steps"]["counts"][place]
    return float(replica["steps"]["seconds"][place] + replica["key"] * rows * keys)


def _at(curve: Record, count: int) -> float:
    places = list(zip(curve["counts"], curve["seconds"], strict=True))
    return float(min(places, key=lambda point: abs(point[0] - count))[1])


def _mean_lengths(lengths: Sequence[Sequence[int]]) -> str:
    source, target = (statistics.fmean(each[side] for each in lengths) for side in (0, 1))
    return f"{source:.1f} → {target:.1f}"


def _tiny(seconds: float) -> str:
    return f"{seconds * _MICRO:.2f}"


def _turns(turns: Mapping[str, float]) -> str:
    return f"{turns['slice'] * _MILLI:.1f} / {turns['tick'] * _MILLI:.1f}"


def _bytes(traffic: Mapping[str, float]) -> str:
    return f"{traffic['received']:,.0f} / {traffic['sent']:,.0f}"
