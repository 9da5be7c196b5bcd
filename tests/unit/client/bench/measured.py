"""Measurements made up."""

from __future__ import annotations

from array import array

from translane_client.bench.measurement import Measurement


def measured(*latencies: float, rate: float | None = 50.0, seconds: float = 10.0, **values) -> Measurement:
    clients = None if rate else 3
    measurement = Measurement(rate, clients, 1, seconds=seconds, latencies=array("d", latencies), **values)
    measurement.answered_within = len(latencies)
    return measurement
