"""The forms of a message: binary, or JSON. connectrpc hands both on as they came; `calls` converts JSON.

So a message is converted where it can wait for a thread, and a binary message is never parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from connectrpc.codec import Codec


@dataclass(frozen=True)
class Encoded:
    """A message of a request as it came.

    Attributes:
        data: the message.
        is_json: whether it is JSON, and not binary. The answer has the same form.
    """

    data: bytes
    is_json: bool


class _Bytes(Codec[bytes, Encoded]):
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def encode(self, message: bytes) -> bytes:
        return message

    def decode(self, data: bytes | bytearray, message_class: Any) -> Encoded:  # noqa: ARG002
        return Encoded(bytes(data), self._name == "json")


CODECS = (_Bytes("proto"), _Bytes("json"))
