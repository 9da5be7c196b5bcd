"""What the lines of a file hold: a text, columns with tabs between them, or a JSON object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from translane_batch.answers import Answer
from translane_batch.records.record import BLANK_RECORD, Record, record_of

_TABS = str.maketrans("\t", " ")


class TextForm:
    """A line is a text. The output has the translation alone."""

    def record(self, line: bytes) -> Record:
        """See `LineForm`."""
        try:
            return record_of(line.decode())
        except UnicodeDecodeError as error:
            return _not_utf8(error)

    def line(self, line: bytes, record: Record, answer: Answer) -> bytes:  # noqa: ARG002 - of LineForm
        """See `LineForm`."""
        return on_a_line(answer.text).encode()


@dataclass(frozen=True)
class ColumnForm:
    """A line has columns. The translation of one of them, counted from 1, is a new column at the end."""

    column: int

    def record(self, line: bytes) -> Record:
        """See `LineForm`."""
        if not line:
            return BLANK_RECORD
        try:
            cells = line.decode().split("\t")
        except UnicodeDecodeError as error:
            return _not_utf8(error)
        if len(cells) < self.column:
            return Record("", f"it has {len(cells)} column{'s' * (len(cells) > 1)}, and --column is {self.column}")
        return record_of(cells[self.column - 1])

    def line(self, line: bytes, record: Record, answer: Answer) -> bytes:
        """See `LineForm`. A blank line stays as it is."""
        if not line and not record.problem:
            return line
        return line + b"\t" + on_a_line(answer.text).translate(_TABS).encode()


@dataclass(frozen=True)
class ObjectForm:
    """A line is a JSON object. The translation of `field` is its new last field, `output_field`.

    The rest of the object stays as it is, byte for byte. The new field is null where a translation is left out.
    """

    field: str
    output_field: str

    def record(self, line: bytes) -> Record:
        """See `LineForm`."""
        if not line.strip():
            return BLANK_RECORD
        try:
            value = _parsed(line)
        except UnicodeDecodeError as error:
            return _not_utf8(error)
        except (ValueError, RecursionError):
            return Record("", "it is not JSON")
        if not isinstance(value, dict):
            return Record("", "it is not a JSON object")
        if self.output_field in value:
            return Record("", f"it has a field {self.output_field!r} already; --output-field names another")
        if self.field not in value:
            return Record("", f"it has no field {self.field!r}; --field names another")
        text = value[self.field]
        if text is None:
            return BLANK_RECORD
        if not isinstance(text, str):
            return Record("", f"its field {self.field!r} is not a text")
        if not _is_unicode(text):
            return Record("", f"its field {self.field!r} holds half a character")
        return record_of(text)

    def line(self, line: bytes, record: Record, answer: Answer) -> bytes:
        """See `LineForm`. A blank line stays as it is, and so does an object that has the new field already."""
        body = line.strip()
        if not body and not record.problem:
            return line
        if record.problem:
            known = _object_or_none(body)
            if known is None:
                body = b"{}"
            elif self.output_field in known:
                return line
        value = None if answer.reason and not answer.text else answer.text
        member = json.dumps(self.output_field, ensure_ascii=False) + ": " + json.dumps(value, ensure_ascii=False)
        start = body[:-1].rstrip()
        return start + (b"" if start == b"{" else b", ") + member.encode() + b"}"


def on_a_line(text: str) -> str:
    """Return `text` with a space in place of each line break."""
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")


def _parsed(line: bytes) -> Any:
    return json.loads(line.decode())


def _object_or_none(line: bytes) -> dict[str, Any] | None:
    try:
        value = _parsed(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_unicode(text: str) -> bool:
    r"""Whether the text can be encoded: JSON can say "\ud800", which is half of a pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_utf8(error: UnicodeDecodeError) -> Record:
    return Record("", f"it is not UTF-8, from its byte {error.start + 1} on")
