"""The parts of a file as a command's inputs."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from translane.results import Translation
from translane_client.cli.files.part import Part
from translane_client.cli.files.part_writer import PartWriter
from translane_client.cli.inputs import Inputs, Written, is_terminal
from translane_client.cli.text_files import FileError


class Parts(Inputs[str]):
    """The texts of a file's parts. `whole` puts the translations of a part together again.

    Args:
        file: The file.
        name: The file's name in errors.
        parts: Reads the parts of the file, once.
    """

    def __init__(self, file: BinaryIO, name: str, parts: Iterator[Part]) -> None:
        super().__init__(file)
        self.name = name
        self.typed = is_terminal(file)
        self.digest = hashlib.blake2b(digest_size=8)
        """Of the parts that were skipped, and of those whose translations are written."""
        self._parts = parts
        self._waiting: deque[tuple[int, Part]] = deque()
        """Parts that were read and not yet written, with the number of each one's first text."""

    def skip(self, count: int, digest: str) -> int:
        """Reads so many parts, which an interrupted command has written; returns their bytes.

        Raises:
            FileError: the parts have another digest, or there are fewer.
        """
        size = 0
        for _ in range(count):
            part = next(self._parts, None)
            if part is None:
                break
            self.digest.update(part.raw)
            size += len(part.raw)
        if count and self.digest.hexdigest() != digest:
            raise FileError(f"{self.name} has changed since the interruption; without --resume, it is translated anew")
        return size

    def items(self) -> Iterator[str]:
        """Reads the texts. FileError: the file cannot be read, or is not of its kind."""
        count = 0
        for part in self._parts:
            self._waiting.append((count, part))
            self.sizes.append(len(part.raw))
            count += len(part.texts)
            yield from part.texts

    def whole(self, translations: Iterable[Translation]) -> Iterator[tuple[Part, list[Translation]]]:
        """Each part, and the translations of its texts. The translations are those of `items`, in order."""
        ready = list[Translation]()
        for translation in translations:
            ready.append(translation)
            yield from self._filled(ready)
        yield from self._filled(ready)

    def _filled(self, ready: list[Translation]) -> Iterator[tuple[Part, list[Translation]]]:
        while self._waiting and len(ready) >= (size := len(self._waiting[0][1].texts)):
            _, part = self._waiting.popleft()
            translations, ready[:size] = ready[:size], []
            yield part, translations

    def place(self, index: int, part: str = "") -> str:  # noqa: ARG002 - a text has no parts
        """The file, and the line on which the text's part begins."""
        line = next((each.line for first, each in reversed(self._waiting) if first <= index), 1)
        return f"{self.name}, line {line}"

    def written(self, output: Written) -> str:
        """The end of a sentence about a failure: how much was written, and that the command can go on from there."""
        told = super().written(output)
        if not isinstance(output, PartWriter):
            return told
        if output.is_document:
            told = "; 1 text was translated" if output.count == 1 else f"; {output.count} texts were translated"
        return f"{told}, and --resume goes on from there" if output.can_be_resumed and output.count else told
