"""Thin Python client of the Translane translation service.

    from translane_client import Client

    with Client("localhost:50051") as client:
        print(client.translate("我有一只猫"))

Needs grpcio and protobuf alone: neither numpy nor a deep-learning framework is imported.
"""

from translane_client.aio import AsyncClient
from translane_client.client import Client
from translane_client.errors import (
    Cancelled,
    DeadlineExceeded,
    FieldViolation,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    QueueFull,
    ResourceExhausted,
    TranslaneError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from translane_client.options import DecodingOptions
from translane_client.retry import RetryPolicy
from translane_client.types import (
    AlignmentPoint,
    FinishReason,
    Hypothesis,
    Limits,
    ModelInfo,
    ServerInfo,
    Timing,
    Translation,
)

__all__ = [
    "AlignmentPoint",
    "AsyncClient",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "DecodingOptions",
    "FieldViolation",
    "FinishReason",
    "Hypothesis",
    "Internal",
    "InvalidArgument",
    "Limits",
    "ModelInfo",
    "NotFound",
    "PermissionDenied",
    "QueueFull",
    "ResourceExhausted",
    "RetryPolicy",
    "ServerInfo",
    "Timing",
    "TranslaneError",
    "Translation",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
]
