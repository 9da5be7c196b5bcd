"""A name server for one name, whose addresses a test chooses: gRPC asks it by `dns://HOST:PORT/NAME:PORT`."""

import socket
import struct
import threading
from typing import Self

_HEADER = 12
_ADDRESS = 1  # the record's type A, https://www.rfc-editor.org/rfc/rfc1035#section-3.2.2
_INTERNET = 1
_NAME_OF_THE_QUESTION = 0xC000 | _HEADER  # a pointer, section 4.1.4
_ANSWER = 0x8580  # a response, authoritative, recursion wanted and offered


class NameServer:
    """Answers every question for an address with `addresses`, as they are then; a context manager."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            question, asker = self._socket.recvfrom(512)
            if not question:
                return
            self._socket.sendto(self._answer(question), asker)

    def _answer(self, message: bytes) -> bytes:
        end = message.index(0, _HEADER) + 5  # the name ends with an empty label; type and class follow
        (kind,) = struct.unpack("!H", message[end - 4 : end - 2])
        addresses = self.addresses if kind == _ADDRESS else []
        header = message[:2] + struct.pack("!HHHHH", _ANSWER, 1, len(addresses), 0, 0)
        records = [
            struct.pack("!HHHIH", _NAME_OF_THE_QUESTION, _ADDRESS, _INTERNET, 0, 4) + socket.inet_aton(address)
            for address in addresses
        ]
        return header + message[_HEADER:end] + b"".join(records)
