"""The metrics of all front ends, as those of one server."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric
from prometheus_client.registry import Collector

from translane_server.observation.metrics import Metrics

LABEL = "front_end"

# Of its own process, the parent shows these families, without the label.
_OF_PARENT = ("process_", "grpc_server_")

# Longest wait for the front ends, and for the parent's event loop that asks them [seconds].
PATIENCE = 2.0
_LOOP_PATIENCE = 2 * PATIENCE

Collected = Mapping[int, Sequence[Metric]]
"""The metrics of each front end that has answered, by its number."""


def merged(collected: Collected) -> list[Metric]:
    """Return the families of all front ends by their names, with the label `front_end` in each sample.

    The order is that of the first front end.
    """
    families: dict[str, Metric] = {}
    for number, of_front_end in sorted(collected.items()):
        for family in of_front_end:
            found = families.get(family.name)
            if found is None:
                found = families[family.name] = Metric(family.name, family.documentation, family.type, family.unit)
            found.samples += [
                sample._replace(labels={LABEL: str(number), **sample.labels}) for sample in family.samples
            ]
    return list(families.values())


class ParentMetrics:
    """The metrics that the parent counts itself.

    Attributes:
        of_calls: counts the calls of the parent's own ports.
        running: front ends that translate.
        limit: the setting `front_ends`.
        losses: front ends that were lost.
        silences: front ends that did not answer a scrape in time.
    """

    def __init__(self) -> None:
        self.of_calls = Metrics()
        registry = self.of_calls.registry
        self.running = Gauge("translane_front_ends", "Front ends that translate.", registry=registry)
        self.limit = Gauge("translane_front_ends_limit", "Front ends: the setting front_ends.", registry=registry)
        self.losses = Counter("translane_front_end_losses_total", "Front ends that were lost.", registry=registry)
        self.silences = Counter(
            "translane_front_end_silences_total",
            "Front ends whose metrics are missing in a scrape, as they did not answer in time.",
            registry=registry,
        )
        self._own = (self.running, self.limit, self.losses, self.silences)

    def collect(self) -> list[Metric]:
        """Return the parent's own families."""
        own = [family for each in self._own for family in each.collect()]
        names = {family.name for family in own}
        return own + [
            family
            for family in self.of_calls.registry.collect()
            if family.name.startswith(_OF_PARENT) and family.name not in names and family.samples
        ]


class FrontEndCollector(Collector):
    """Collects the metrics of the parent and of all front ends.

    Args:
        parent: the parent's own metrics.
        ask: asks all front ends.
        loop: the event loop on which `ask` runs.

    Attributes:
        registry: has this collector alone.
    """

    def __init__(
        self,
        parent: ParentMetrics,
        ask: Callable[[], Coroutine[None, None, Collected]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.registry = CollectorRegistry()
        self._parent = parent
        self._ask = ask
        self._loop = loop
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return all families, so that a scrape may ask for some of them by name."""
        return self.joined({0: list(Metrics().registry.collect())})

    def collect(self) -> Iterable[Metric]:
        """Ask all front ends. It is called on a thread of the metrics port."""
        asked = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        try:
            collected = asked.result(_LOOP_PATIENCE)
        except (TimeoutError, concurrent.futures.CancelledError):
            asked.cancel()
            collected = {}
        return self.joined(collected)

    def joined(self, collected: Collected) -> list[Metric]:
        """Return the families of the front ends and the parent, each name once."""
        families = {family.name: family for family in merged(collected)}
        for own in self._parent.collect():
            if found := families.get(own.name):
                found.samples += own.samples
            else:
                families[own.name] = own
        return list(families.values())
