"""The setup of a replica: the server's first message to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device
from translane_server.engine.sequence import TargetVocabulary


@dataclass(frozen=True)
class ModelSetup:
    """The model, and how replicas run it.

    Attributes:
        bundle: the checked bundle of the model.
        device: the device that runs the model.
        threads: number of ONNX Runtime's threads in each replica.
        source_capacity: maximum number of source tokens of a sentence.
        target_capacity: maximum number of decode steps of a sentence.
        encode_tokens: maximum number of source tokens, with padding, that are encoded between two decode steps.
        log_format: see `logs.configure_logging`.
        log_level: see `logs.configure_logging`.
        log_always: see `logs.configure_logging`.
    """

    bundle: Bundle
    device: Device
    threads: int
    source_capacity: int
    target_capacity: int
    encode_tokens: int
    log_format: Literal["plain", "json"] = "plain"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_always: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReplicaSetup:
    """The setup of one replica.

    Attributes:
        number: number of the replica.
        rows: maximum number of hypotheses that decode at once.
        vocabulary: the target vocabulary.
        model: the model; None if the replica's host has a backend already.
        lone_threads: number of ONNX Runtime's threads while no other replica of the model is at work, if that is more
            than `model.threads`.
    """

    number: int
    rows: int
    vocabulary: TargetVocabulary
    model: ModelSetup | None = None
    lone_threads: int = 1
