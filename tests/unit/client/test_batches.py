"""Long lists are cut into batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from translane_client._batches import batches


@given(st.lists(st.text()), st.integers(1, 9))
def test_batches_are_the_texts(texts: list[str], size: int):
    cut = list(batches(texts, size, len))
    assert [text for batch in cut for text in batch.items] == texts
    assert [batch.offset for batch in cut] == list(range(0, len(texts), size))
    assert all(1 <= len(batch.items) <= size for batch in cut)
