"""Stored glossaries, through the socket: listed, and read again under load. What they do, golden requests show."""

import asyncio

import pytest

from fakes.serving import serving
from helpers.http_calls import until
from translane.v1 import translation_pb2 as pb

PATIENCE = 30  # seconds


def put(folder, content, name="greek.zh.en.tsv"):
    (folder / f".{name}").write_text(content, encoding="utf-8")
    (folder / f".{name}").rename(folder / name)


@pytest.mark.slow
async def test_files_change_under_load_and_no_request_fails(tmp_path):
    """Each answer is whole: made with the terms of one version of the file, the newest in the end."""
    put(tmp_path, "word\tword\n")
    async with serving(glossaries=tmp_path, rows=16) as running:
        running.backend.takes_others = True  # targets that the source does not have
        seen: list[str] = []
        request = pb.TranslateRequest(texts=["word word", "word"], options={"glossaries": ["greek"]})
        stop = asyncio.Event()

        async def ask():
            while not stop.is_set():
                answer = await running.stub.Translate(request, timeout=PATIENCE)
                targets = {each.target for one in answer.translations for each in one.treatment.terms}
                assert len(targets) <= 1
                seen.extend(targets)

        callers = [asyncio.create_task(ask()) for _ in range(4)]
        for version in range(20):
            bad = version % 5 == 3
            put(tmp_path, "no tab\n" if bad else f"# {version}\nword\t{'word' if version % 2 else 'wor'}\n")
            await asyncio.sleep(0.05)
        put(tmp_path, "word\two\n")
        await until(lambda: "wo" in seen[-1:], PATIENCE)
        stop.set()
        await asyncio.gather(*callers)
        assert {"wo", "wor", "word"} == set(seen)
        put(tmp_path, "a\tb\n", "more.zh.en.tsv")

        async def are_listed():
            (model,) = (await running.stub.ListModels(pb.ListModelsRequest())).models
            return list(model.glossaries) == ["greek", "more"]

        await until(are_listed)
