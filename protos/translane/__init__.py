"""Translation with Transformers: a client of the server, or the server's decoder in one's own process.

    from translane import Client, Translator

    with Client("localhost:50051") as client:       # needs a server
        print(client.translate("我有一只猫"))

    with Translator("models/zh-en") as translator:  # needs the extra "server"
        print(translator.translate("我有一只猫"))

The protocol's messages and gRPC stubs are in `translane.v1`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from translane.errors import (
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
    from translane.options import DecodingOptions, DocumentOptions, Format, ScoreOptions, Term, TranslateOptions
    from translane.results import (
        AlignmentPoint,
        DocumentNote,
        DocumentProgress,
        FinishReason,
        Hypothesis,
        Limits,
        ModelInfo,
        Score,
        ServerInfo,
        StreamedTranslation,
        TermOutcome,
        TermReport,
        Timing,
        TranslatedDocument,
        Translation,
        Treatment,
    )
    from translane.streams import AsyncTranslationStream, TranslationStream
    from translane_client.aio import AsyncClient
    from translane_client.client import Client
    from translane_client.connection import Connection, ConnectionOptions
    from translane_client.retry import RetryPolicy
    from translane_server.app.blocking_translator import Translator
    from translane_server.app.in_process import AsyncTranslator

__all__ = [
    "AlignmentPoint",
    "AsyncClient",
    "AsyncTranslationStream",
    "AsyncTranslator",
    "Cancelled",
    "Client",
    "Connection",
    "ConnectionOptions",
    "DeadlineExceeded",
    "DecodingOptions",
    "DocumentNote",
    "DocumentOptions",
    "DocumentProgress",
    "FieldViolation",
    "FinishReason",
    "Format",
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
    "Score",
    "ScoreOptions",
    "ServerInfo",
    "StreamedTranslation",
    "Term",
    "TermOutcome",
    "TermReport",
    "Timing",
    "TranslaneError",
    "TranslateOptions",
    "TranslatedDocument",
    "Translation",
    "TranslationStream",
    "Translator",
    "Treatment",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
]

_MODULES = {
    "AsyncClient": "translane_client.aio",
    "AsyncTranslator": "translane_server.app.in_process",
    "Client": "translane_client.client",
    "Connection": "translane_client.connection",
    "ConnectionOptions": "translane_client.connection",
    "RetryPolicy": "translane_client.retry",
    "Translator": "translane_server.app.blocking_translator",
}
"""Exported name → the module that defines it. The others are looked for in `_PLAIN`, of which the last needs gRPC."""

_PLAIN = ("translane.results", "translane.options", "translane.streams", "translane.errors")


def __getattr__(name: str) -> Any:
    """Imports an exported name at its first use, so that the command can handle Ctrl-C before gRPC is imported."""
    if name in __all__:
        for module in [_MODULES[name]] if name in _MODULES else _PLAIN:
            if hasattr(import_module(module), name):
                value = globals()[name] = getattr(import_module(module), name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
