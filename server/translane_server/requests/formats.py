"""The formats that texts may be written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from translane.v1 import translation_pb2 as pb
from translane_server.errors import FieldViolation
from translane_server.text.markup.document import Document
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff

# What reads each format. Plain text needs no reader.
FORMATS: Mapping[int, Callable[[str], Document]] = {
    pb.FORMAT_HTML: parse_html,
    pb.FORMAT_MARKDOWN: parse_markdown,
    pb.FORMAT_XLIFF: parse_xliff,
}

_PLAIN = (pb.FORMAT_UNSPECIFIED, pb.FORMAT_TEXT)


def check_format(format_: int) -> list[FieldViolation]:
    """Return what is wrong with a request's format."""
    if format_ in _PLAIN or format_ in FORMATS:
        return []
    known = format_ in pb.Format.values()
    name = pb.Format.Name(pb.Format.ValueType(format_)) if known else str(format_)
    return [FieldViolation("format", f"{name} is not supported by this server")]
