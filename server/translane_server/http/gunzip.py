"""Compressed requests: clients of Connect compress what they send. Answers are not compressed."""

from __future__ import annotations

import zlib

from connectrpc.compression import Compression

from translane_server.api.status import status_of
from translane_server.core.errors import FieldViolation, InvalidRequestError, MessageTooLargeError, RequestError
from translane_server.http.statuses import connect_error

_GZIP = 31  # zlib's number for a window of 32 KiB with gzip's header


class Gunzip(Compression):
    """Decompresses gzip up to a size. A second member is refused: thousands of empty ones would take long."""

    def name(self) -> str:
        return "gzip"

    def compress(self, data: bytes | bytearray | memoryview) -> bytes:
        raise NotImplementedError("answers are not compressed")

    def decompress(self, data: bytes | bytearray | memoryview, read_max_bytes: int | None = None) -> bytes:
        assert read_max_bytes is not None
        decompressor = zlib.decompressobj(_GZIP)
        try:
            content = decompressor.decompress(data, read_max_bytes + 1)
        except zlib.error:
            raise _told(InvalidRequestError(FieldViolation("body", "is not gzip"))) from None
        if len(content) > read_max_bytes:
            raise _told(MessageTooLargeError(f"the body has more than {read_max_bytes} bytes without its compression"))
        if not decompressor.eof or decompressor.unused_data:
            raise _told(InvalidRequestError(FieldViolation("body", "is not one whole member of gzip")))
        return content


def _told(error: RequestError) -> Exception:
    return connect_error(status_of(error))
