"""What runs on a machine: front ends, and the replicas of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The processes of a machine.

    Attributes:
        cores: cores of the machine.
        rows: the rows of each replica of each front end.
        encode_tokens: the server's setting.
        waiting_limit: most sentences that wait in a front end.
        others: cores that other programs want all the time.
        caller_processes: programs of callers on the same cores; 0 if the callers have machines of their own.
        caller_cores: cores of the callers' own machine, if their programs are simulated there; 0 if none are.
        nice: whether front ends go before replicas; see `processors`.
    """

    cores: float
    rows: Sequence[Sequence[int]]
    encode_tokens: int = 2048
    waiting_limit: int = 1024
    others: float = 0.0
    caller_processes: int = 0
    caller_cores: int = 0
    nice: bool = True

    @property
    def front_ends(self) -> int:
        """Number of front ends."""
        return len(self.rows)

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return sum(map(len, self.rows))
