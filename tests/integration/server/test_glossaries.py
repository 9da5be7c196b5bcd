"""Stored glossaries, through the socket: named, listed, reported, and read again under load."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

from fakes.serving import serving
from translane.v1 import translation_pb2 as pb

PATIENCE = 30  # seconds
APPLIED, NOT_FOUND = pb.TERM_OUTCOME_APPLIED, pb.TERM_OUTCOME_NOT_FOUND


def put(folder, content, name="greek.zh.en.tsv"):
    (folder / f".{name}").write_text(content, encoding="utf-8")
    (folder / f".{name}").rename(folder / name)


def request(*texts, glossaries=("greek",), **options):
    return pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(glossaries=glossaries, **options))


def reports(message):
    return [(each.source, each.target, each.outcome, each.glossary) for each in message.treatment.terms]


@asynccontextmanager
async def glossaries_of(folder):
    async with serving(glossaries=folder, rows=16) as running:
        running.backend.takes_others = True  # targets that the source does not have
        yield running


@pytest.fixture
def folder(tmp_path):
    put(tmp_path, "alpha\tALPHA\nbeta\t\u03c0\nGamma\tgamma\tignore-case\n")
    put(tmp_path, "x\ty\n", "french.fr.en.tsv")
    return tmp_path


async def test_terms_of_stored_glossaries_are_kept_and_reported(folder):
    async with glossaries_of(folder) as running:
        answer = await running.stub.Translate(
            request("one alpha", "beta", "gamma gamma", "none", terminology=[pb.Term(source="one", target="one")])
        )
        assert [reports(translation) for translation in answer.translations] == [
            [("one", "one", APPLIED, ""), ("alpha", "ALPHA", APPLIED, "greek")],
            [("one", "one", NOT_FOUND, ""), ("beta", "\u03c0", pb.TERM_OUTCOME_UNSPELLABLE, "greek")],
            [("one", "one", NOT_FOUND, ""), ("Gamma", "gamma", APPLIED, "greek")],
            [("one", "one", NOT_FOUND, "")],
        ]
        texts = [translation.hypotheses[0].text for translation in answer.translations]
        assert "one" in texts[0]
        assert "ALPHA" in texts[0]
        assert texts[1:] == ["beta", "gamma gamma", "none"]
        plain = await running.stub.Translate(pb.TranslateRequest(texts=["alpha"]))
        assert not plain.translations[0].HasField("treatment")


async def test_the_last_message_of_a_stream_reports_terms(folder):
    async with glossaries_of(folder) as running:
        asked = pb.TranslateStreamRequest(text="an alpha", options=pb.DecodingOptions(glossaries=["greek"]))
        messages = [message async for message in running.stub.TranslateStream(asked)]
        assert "".join(message.text_delta for message in messages) == messages[-1].hypothesis.text
        assert [message.HasField("treatment") for message in messages] == [False] * (len(messages) - 1) + [True]
        assert reports(messages[-1]) == [("alpha", "ALPHA", APPLIED, "greek")]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("latin", "'latin' is not a glossary of this server; for zh to en there is greek"),
        ("french", "'french' is a glossary for fr to en, and not for zh to en"),
    ],
)
async def test_a_glossary_that_is_not_there_is_refused(folder, name, told):
    async with glossaries_of(folder) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.stub.Translate(request("a", glossaries=["greek", name]))
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.details() == f"options.glossaries[1]: {told}"


async def test_models_list_their_glossaries(folder):
    async with glossaries_of(folder) as running:
        (model,) = (await running.stub.ListModels(pb.ListModelsRequest())).models
        assert list(model.glossaries) == ["greek"]
        put(folder, "a\tb\n", "more.zh.en.tsv")
        async with asyncio.timeout(PATIENCE):
            while list(model.glossaries) != ["greek", "more"]:
                await asyncio.sleep(0.01)
                (model,) = (await running.stub.ListModels(pb.ListModelsRequest())).models


@pytest.mark.slow
async def test_files_change_under_load_and_no_request_fails(folder):
    """Each answer is whole: made with the terms of one version of the file, the newest in the end."""
    async with glossaries_of(folder) as running:
        seen: list[str] = []
        stop = asyncio.Event()

        async def ask():
            while not stop.is_set():
                answer = await running.stub.Translate(request("word word", "word"), timeout=PATIENCE)
                found = {each.source for one in answer.translations for each in one.treatment.terms}
                targets = {each.target for one in answer.translations for each in one.treatment.terms}
                assert len(found) <= 1
                assert len(targets) <= 1
                seen.extend(targets)

        callers = [asyncio.create_task(ask()) for _ in range(4)]
        for version in range(20):
            bad = version % 5 == 3
            put(folder, "no tab\n" if bad else f"# {version}\nword\t{'word' if version % 2 else 'wor'}\n")
            await asyncio.sleep(0.05)
        put(folder, "word\two\n")
        async with asyncio.timeout(PATIENCE):
            while "wo" not in seen[-1:]:  # noqa: ASYNC110 nobody tells
                await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*callers)
        assert {"wo", "wor", "word"} == set(seen)
