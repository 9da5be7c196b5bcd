"""What makes one replica different from another, and from those of another model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from translane_server.bundle import Bundle
from translane_server.devices import Device
from translane_server.vocabulary import TargetVocabulary


@dataclass(frozen=True)
class ReplicaSetup:
    """What a replica's process is told first.

    Attributes:
        number: of the replica.
        bundle: what it decodes with; it is checked.
        device: what runs it.
        threads: of ONNX Runtime.
        rows: how many hypotheses decode at once at most.
        source_capacity: most source tokens of a sentence.
        target_capacity: most decoder steps of a sentence.
        encode_tokens: how many padded source tokens it encodes at most between two decoder steps.
        vocabulary: of the target.
        log_format: see `logs.configure_logging`.
        log_level: likewise.
    """

    number: int
    bundle: Bundle
    device: Device
    threads: int
    rows: int
    source_capacity: int
    target_capacity: int
    encode_tokens: int
    vocabulary: TargetVocabulary
    log_format: Literal["plain", "json"] = "plain"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
