"""One line is one text, whatever is on it."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from translane_client.cli.text_files import LineWriter, texts_of

UNICODE = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(UNICODE.filter(lambda text: not {"\r", "\n"} & set(text))), st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read_back(texts: list[str], end: str):
    stdout = io.BytesIO()
    writer = LineWriter(None, stdout)
    for text in texts:
        writer.write(text)
    data = b"\xef\xbb\xbf" + stdout.getvalue().replace(b"\n", end.encode())
    read = list(texts_of(io.BytesIO(data), "memory"))
    assert [text for text, _ in read] == texts
    assert sum(size for _, size in read) == (len(data) if texts else 0)


@given(UNICODE)
def test_a_translation_is_always_one_line(text: str):
    stdout = io.BytesIO()
    LineWriter(None, stdout).write(text)
    assert len(list(texts_of(io.BytesIO(stdout.getvalue()), "memory"))) == 1


@given(st.lists(st.text(st.sampled_from("a\r\n猫"), min_size=1)), st.booleans())
def test_parts_make_the_line_that_their_text_makes(parts: list[str], keep_breaks: bool):
    whole, cut = io.BytesIO(), io.BytesIO()
    LineWriter(None, whole, keep_breaks=keep_breaks).write("".join(parts))
    writer = LineWriter(None, cut, keep_breaks=keep_breaks)
    for part in parts:
        writer.write_part(part)
    writer.end_line()
    assert cut.getvalue() == whole.getvalue()
    assert (writer.count, writer.begun) == (1, False)
