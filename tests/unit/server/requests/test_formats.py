"""Formats of texts."""

from translane.v1 import translation_pb2 as pb
from translane_server.requests.formats import check_format


def test_a_format_that_nothing_reads_is_refused():
    assert check_format(pb.FORMAT_UNSPECIFIED) == check_format(pb.FORMAT_TEXT) == []
    assert [(each.field, each.description) for each in check_format(99)] == [
        ("format", "99 is not supported by this server")
    ]
