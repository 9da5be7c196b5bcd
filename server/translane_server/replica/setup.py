"""What a replica is told first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from translane_server.bundle import Bundle
from translane_server.devices import Device
from translane_server.vocabulary import TargetVocabulary


@dataclass(frozen=True)
class ModelSetup:
    """How the replicas of a model run it.

    Attributes:
        bundle: what they decode with; it is checked.
        device: what runs it.
        threads: of ONNX Runtime, in each replica.
        source_capacity: most source tokens of a sentence.
        target_capacity: most decoder steps of a sentence.
        encode_tokens: how many padded source tokens a replica encodes at most between two decoder steps.
        log_format: see `logs.configure_logging`.
        log_level: likewise.
    """

    bundle: Bundle
    device: Device
    threads: int
    source_capacity: int
    target_capacity: int
    encode_tokens: int
    log_format: Literal["plain", "json"] = "plain"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True)
class ReplicaSetup:
    """What one replica is told.

    Attributes:
        number: of the replica.
        rows: how many hypotheses decode at once at most.
        vocabulary: of the target.
        model: what it runs; None where its host has a backend at hand.
    """

    number: int
    rows: int
    vocabulary: TargetVocabulary
    model: ModelSetup | None = None
