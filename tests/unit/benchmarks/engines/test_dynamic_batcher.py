"""What CTranslate2's server makes batches of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from benchmarks.engines.dynamic_batcher import DynamicBatcher, Entry


class Translator:
    """Notes the batches, and answers each when it may."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may_answer = threading.Semaphore(0)

    def __call__(self, batch: Sequence[Entry]) -> list[str]:
        self.batches.append([" ".join(entry.source) for entry in batch])
        self.may_answer.acquire(timeout=10)
        return [" ".join(entry.source).upper() for entry in batch]


def entries(*texts: str, beam_size: int = 1) -> list[Entry]:
    loop = asyncio.get_running_loop()
    return [Entry(text.split(), 100, beam_size, loop.time(), loop.create_future()) for text in texts]


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - it comes true in another thread
            await asyncio.sleep(0.001)


async def results(all_of: Sequence[Entry]) -> list[str]:
    return list(await asyncio.gather(*(entry.result for entry in all_of)))


async def test_sentences_gather_while_there_is_no_room():
    translate = Translator()
    batcher = DynamicBatcher(translate, size=8, wait=0.0, under_way=1)
    first, rest = entries("a"), entries("b", "c")
    batcher.add(first)
    await until(lambda: translate.batches)
    batcher.add(rest[:1])
    batcher.add(rest[1:])
    assert len(batcher) == 2
    translate.may_answer.release(2)
    assert await results(first + rest) == ["A", "B", "C"]
    assert translate.batches == [["a"], ["b", "c"]]


async def test_what_waits_is_shared_among_the_places_by_length():
    translate = Translator()
    translate.may_answer.release(2)
    batcher = DynamicBatcher(translate, size=8, wait=0.0, under_way=2)
    added = entries("a", "b b b", "c c", "d d d d")
    batcher.add(added)
    assert await results(added) == ["A", "B B B", "C C", "D D D D"]
    assert sorted(translate.batches) == [["c c", "a"], ["d d d d", "b b b"]]


async def test_a_batch_holds_so_many_at_most_and_the_oldest_first():
    translate = Translator()
    translate.may_answer.release(3)
    batcher = DynamicBatcher(translate, size=2, wait=0.0, under_way=1)
    added = entries("a", "b", "c", "d", "e")
    batcher.add(added)
    await results(added)
    assert translate.batches == [["a", "b"], ["c", "d"], ["e"]]


async def test_a_sentence_waits_for_company_no_longer_than_it_may():
    translate = Translator()
    translate.may_answer.release(2)
    batcher = DynamicBatcher(translate, size=3, wait=0.05, under_way=1)
    lonely = entries("a", "b")
    batcher.add(lonely)
    assert len(batcher) == 2
    await results(lonely)
    full = entries("c", "d", "e")
    batcher.add(full)
    assert len(batcher) == 0
    await results(full)
    assert translate.batches == [["a", "b"], ["c", "d", "e"]]


async def test_searches_of_different_widths_are_not_mixed():
    translate = Translator()
    translate.may_answer.release(2)
    batcher = DynamicBatcher(translate, size=8, wait=0.0, under_way=1)
    added = entries("a") + entries("b", beam_size=4) + entries("c")
    batcher.add(added)
    await results(added)
    assert translate.batches == [["a", "c"], ["b"]]


async def test_callers_that_have_gone_are_not_translated():
    translate = Translator()
    batcher = DynamicBatcher(translate, size=8, wait=0.0, under_way=1)
    first, gone, last = entries("a", "b", "c")
    batcher.add([first])
    await until(lambda: translate.batches)
    batcher.add([gone, last])
    gone.result.cancel()
    translate.may_answer.release(2)
    await results([first, last])
    assert translate.batches == [["a"], ["c"]]


async def test_a_failure_is_told_to_all_of_its_batch_and_makes_room():
    def translate(batch: Sequence[Entry]) -> list[str]:
        if batch[0].source == ["bad"]:
            raise ValueError("no")
        return ["good"] * len(batch)

    batcher = DynamicBatcher(translate, size=8, wait=0.0, under_way=1)
    bad = entries("bad", "bad")
    batcher.add(bad)
    for entry in bad:
        with pytest.raises(ValueError, match="no"):
            await entry.result
    good = entries("a")
    batcher.add(good)
    assert await results(good) == ["good"]
