"""Long lists are cut into batches."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from translane_client._batches import MOST_BYTES, batches
from translane_client._requests import RequestSettings, score_job, translate_job


@given(
    st.lists(st.tuples(st.integers(0, 400_000), st.sampled_from("aé我😀")), max_size=12),
    st.integers(0, MOST_BYTES),
    st.booleans(),
)
def test_a_request_of_several_texts_is_no_larger_than_a_server_takes(sizes, overhead: int, pairs: bool):
    texts: list[Any] = [character * (size // len(character.encode())) for size, character in sizes]
    if pairs:
        job: Any = score_job("", "", "", return_tokens=False)
        texts = [(text, text[:10]) for text in texts]
    else:
        job = translate_job(RequestSettings("m" * overhead))
    cut = list(batches(texts, 64, job.size_of, job.overhead))
    assert [text for batch in cut for text in batch.items] == texts
    for batch in cut:
        size = job.call(batch).request.ByteSize()
        assert len(batch.items) == 1 or size - job.overhead <= max(1 << 14, MOST_BYTES - job.overhead)


@given(st.lists(st.text()), st.integers(1, 9))
def test_batches_are_the_texts(texts: list[str], size: int):
    cut = list(batches(texts, size, len))
    assert [text for batch in cut for text in batch.items] == texts
    assert [batch.offset for batch in cut] == list(range(0, len(texts), size))
    assert all(1 <= len(batch.items) <= size for batch in cut)
