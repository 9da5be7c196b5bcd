"""The report of measurements: a table with a line for each, and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from translane_client.bench.measurement import QUANTILES, Measurement

_WIDTH = 10
_NOTHING = "-"


def headings(*, clients: bool, tokens: bool) -> str:
    """The table's first line; `tokens` adds a column of target tokens per second."""
    names = ["clients" if clients else "offered/s", "answered/s", *(f"{_label(share)} ms" for share in QUANTILES)]
    return _line([*names, *(["tokens/s"] if tokens else []), "errors"])


def row(measurement: Measurement, *, tokens: bool) -> str:
    """The line of a measurement."""
    load = f"{measurement.rate:.4g}" if measurement.clients is None else str(measurement.clients)
    cells = [load, f"{measurement.sentences_per_second:.1f}", *map(_milliseconds, measurement.quantiles)]
    if tokens:
        rate = measurement.tokens_per_second
        cells.append(_NOTHING if rate is None else f"{rate:,.0f}")
    return _line([*cells, _errors(measurement)])


def notes(measurement: Measurement) -> list[str]:
    """Sentences that a reader of the measurement's line has to know."""
    found = []
    load = f"{measurement.rate:.4g} sentences/s" if measurement.clients is None else f"{measurement.clients} clients"
    if measurement.broken_off:
        found.append(f"{load}: broken off after {measurement.seconds:.1f} s of measuring")
    if measurement.fell_behind:
        found.append(
            f"{load}: this generator could not keep up: 1% of the requests were sent {measurement.lag * 1000:.0f} ms "
            "late or later, and their latency includes that"
        )
    return found


def as_json(measurement: Measurement) -> dict[str, Any]:
    """The measurement, in base units."""
    quantiles = measurement.quantiles
    return {
        "rate": measurement.rate,
        "clients": measurement.clients,
        "texts_per_request": measurement.texts_per_request,
        "seconds": measurement.seconds,
        "requests": measurement.requests,
        "answered_per_second": measurement.sentences_per_second,
        "tokens_per_second": measurement.tokens_per_second,
        "latency_seconds": {
            _label(share): None if math.isnan(value) else value
            for share, value in zip(QUANTILES, quantiles, strict=True)
        },
        "lag_seconds": measurement.lag,
        "errors": dict(measurement.errors),
        "unanswered": measurement.unanswered,
        "fell_behind": measurement.fell_behind,
        "broken_off": measurement.broken_off,
        "given_up": measurement.given_up,
    }


def _line(cells: list[str]) -> str:
    *numbers, errors = cells
    return "  ".join([*(cell.rjust(_WIDTH) for cell in numbers), errors])


def _label(share: float) -> str:
    return "max" if share == 1 else f"p{share * 100:g}"


def _milliseconds(seconds: float) -> str:
    return _NOTHING if math.isnan(seconds) else f"{seconds * 1000:.1f}"


def _errors(measurement: Measurement) -> str:
    counts: Mapping[str, int] = measurement.errors
    found = [f"{name} {count}" for name, count in sorted(counts.items())]
    if measurement.unanswered:
        found.append(f"unanswered {measurement.unanswered}")
    return ", ".join(found) or _NOTHING
