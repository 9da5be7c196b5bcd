"""Documents that are made to take long end soon."""

from __future__ import annotations

import html

import pytest
from unit.server.text.documents.translated import same, translated

from translane_server.text.documents import DocumentError

LENGTH = 200_000
CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
STARTS = {"txt": "", "srt": f"{CUE}a", "vtt": f"WEBVTT\n\n{CUE}a"}
UNITS = [
    "<", "<i>", "{", "{\\", "{\\a}", "- ", "- a\n", "-", " ", "\n", "\r", "a", "a ", "a\n", "猫", "&", "&amp;",
    "&amp;lt;", "<a &lt;>", "00:00:01,000 --> 00:00:02,000\n", f"{CUE}a\n\n", "1", "\0", "\u2028",
]  # fmt: skip


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize("unit", UNITS)
def test_repetitions_end_soon(kind: str, unit: str):
    size = LENGTH // len(unit.encode())
    for count in (size, 6_000):  # the longer one may have too many texts
        data = (STARTS[kind] + unit * count).encode()
        try:
            out = translated(kind, data, same)
        except DocumentError:
            assert count == size
        else:
            assert said(out) == said(data)


def said(data: bytes) -> str:
    return "".join(html.unescape(html.unescape(data.decode())).split())
