"""The source language auto, and translation through a third language, from the socket to the decoder and back."""

import asyncio
from typing import Any

import pytest

from helpers.http_calls import until
from helpers.key_files import bearer, holder, key_file
from helpers.otlp_receiver import Receiver, tree_of
from helpers.real_server import serving_library
from helpers.tiny_bundle import put_bundle
from translane.v1 import translation_pb2 as pb
from translane_server.access.keys import make_token
from translane_server.observation.tracing import traces

pytestmark = pytest.mark.slow

PAIRS = {"de-en": ("de", "en"), "fr-en": ("fr", "en"), "en-zh": ("en", "zh")}
GERMAN = "Das Wetter ist heute sehr schön, und wir gehen in den Park."
OPTIONS = pb.DecodingOptions(max_length=8, beam_size=2)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A bundle for each language pair; the weights are the same for all."""
    folder = tmp_path_factory.mktemp("models")
    for name, (source, target) in PAIRS.items():
        put_bundle(folder / name, source_languages=[source], target_languages=[target])
    return folder


def texts_of(response):
    return [translation.hypotheses[0].text for translation in response.translations]


async def test_a_document_through_english_is_logged_as_its_texts_are(library, caplog):
    caplog.set_level("DEBUG", "translane_server")
    pair: Any = {"source_language": "de", "target_language": "zh", "options": OPTIONS}
    async with serving_library(library) as running:
        response = await running.stub.Translate(pb.TranslateRequest(texts=[GERMAN, "猫"], **pair))
        document = pb.TranslateDocumentRequest(content=f"{GERMAN}\n猫\n".encode(), mime_type="text/plain", **pair)
        events = [event async for event in running.stub.TranslateDocument(document)]
    assert b"".join(event.content for event in events).decode().split("\n") == [*texts_of(response), ""]
    assert events[-1].end.treatment.pivot_language == "en"
    lines = [record.translane_data for record in caplog.records if record.getMessage() == "request"]
    of_texts, of_document = [
        {name: line[name] for name in ("model", "texts", "sentences", "source_tokens", "generated_tokens")}
        for line in lines
    ]
    assert of_document == of_texts


async def test_the_sentences_of_two_steps_are_paid_for_once(library, tmp_path):
    token = make_token()
    pair: Any = {"source_language": "de", "target_language": "zh"}
    async with serving_library(library, keys_file=key_file(tmp_path, a=holder(token))) as running:
        await running.stub.Translate(
            pb.TranslateRequest(texts=["a", "b"], options=OPTIONS, **pair), metadata=bearer(token)
        )
        assert running.value("translane_key_sentences_total", key="") == 2
        stream = pb.TranslateStreamRequest(text="a", options=OPTIONS, **pair)
        assert [message async for message in running.stub.TranslateStream(stream, metadata=bearer(token))]
        assert running.value("translane_key_sentences_total", key="") == 3


async def test_an_accepted_request_is_answered_by_both_models_while_the_server_closes(library):
    async with serving_library(library) as running:
        request = pb.TranslateRequest(texts=[GERMAN], source_language="de", target_language="zh", options=OPTIONS)
        call = asyncio.ensure_future(running.stub.Translate(request))
        model: Any = running.server.models.models["de-en"]
        await until(lambda: model.ready.dispatcher.active_rows or call.done())
        assert await running.server.stop(grace=10)
        assert [list(each.models) for each in (await call).translations] == [["de-en", "en-zh"]]


async def test_the_spans_of_both_models_are_in_one_trace(library, monkeypatch):
    options = pb.DecodingOptions(max_length=8, beam_size=2, split_sentences=False, preserve_untranslatable=False)
    request = pb.TranslateRequest(texts=[GERMAN], source_language="de", target_language="zh", options=options)
    stream = pb.TranslateStreamRequest(text=GERMAN, source_language="de", target_language="zh", options=options)
    with Receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
        with traces({"OTEL_TRACES_EXPORTER": "otlp"}) as tracer:
            async with serving_library(library, tracer) as running:
                await running.stub.Translate(request)
                _ = [message async for message in running.stub.TranslateStream(stream)]
        spans = receiver.spans
    phases = ["    read", "    sentence", "      queue", "      encode", "      decode", "    build"]
    models = ["  model de-en", *phases, "  model en-zh", *phases]
    for method in ("Translate", "TranslateStream"):
        name = f"translane.v1.TranslationService/{method}"
        (call,) = [span for span in spans if span.name == name]
        assert tree_of([span for span in spans if span.trace_id == call.trace_id]) == [name, *models]
    first, second = [span for span in spans if span.name.startswith("model ")][:2]
    assert first.end <= second.start
    decoded = [span.attributes for span in spans if span.name == "decode"]
    assert {each["translane.rows"] for each in decoded} == {2}
    assert all(each["translane.steps"] > 1 and 1 < each["translane.batch_rows"] <= 2 for each in decoded)
