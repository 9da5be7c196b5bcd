"""Documents through real sockets: what is translated, what stays, and what a document may take from others."""

import asyncio
import itertools
import json
import threading
import tracemalloc

import grpc
import pytest

from fakes.serving import serving
from helpers.failures import failed
from helpers.http_calls import until
from helpers.key_files import bearer, holder, key_file
from helpers.real_server import serving_bundle
from helpers.tiny_bundle import TINY
from translane.conversions import format_message
from translane.v1 import translation_pb2 as pb
from translane_server.access.keys import make_token
from translane_server.bundle.bundle import load_bundle
from translane_server.text.documents import KINDS, parse
from translane_server.text.documents.document import PlacesDocument

SENTENCES = ["我有一只猫。", "车站在哪里？", "谢谢！", "今天天气很好。"]
DOCUMENTS = {
    "text/plain": "\ufeff我有一只猫。\r\n\r\n谢谢！\r\n",
    "text/html": '<!doctype html><html><body><p class=a>我有一只<b>猫</b>。</p><script>猫()</script><img alt="谢谢！">',
    "text/markdown": "# 谢谢！\n\n* 我有一只**猫**。\n\n```\n猫\n```\n",
    "application/xliff+xml": '<?xml version="1.0"?>\n'
    '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    '<file source-language="zh" target-language="en"><body><trans-unit id="1"><source>我有一只<g id="1">猫</g>。'
    "</source></trans-unit></body></file></xliff>\n",
    "text/x-gettext-translation": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n#: a.c:1\n'
    'msgid "谢谢！"\nmsgstr ""\n\nmsgid "我有一只猫。"\nmsgstr "A cat"\n',
    "application/x-subrip": "1\n00:00:01,000 --> 00:00:02,000\n<i>谢谢！</i>\n\n2\n00:00:03,000 --> 00:00:04,000\n猫\n",
    "text/vtt": "WEBVTT\n\nNOTE 猫\n\n00:01.000 --> 00:02.000 align:left\n我有一只猫。\n",
}


async def translated(running, content, kind="text/plain", metadata=None, **fields):
    """The events of a call, the content and the end."""
    message = pb.TranslateDocumentRequest(content=content, mime_type=kind, **fields)
    events = [event async for event in running.stub.TranslateDocument(message, metadata=metadata)]
    return events, b"".join(event.content for event in events), events[-1].end


async def refusal(running, content, kind="text/plain", **fields):
    return await failed(translated(running, content, kind, **fields))


def lines(count, text="abcd"):
    return "\n".join([text] * count).encode()


@pytest.fixture(scope="module")
def bundle():
    return load_bundle(TINY)


async def test_documents_of_every_kind_are_what_their_texts_translate_to(bundle):
    assert DOCUMENTS.keys() == KINDS.keys()
    changed = 0
    async with serving_bundle(bundle, max_batch_size=8, http_port=0) as running:
        for kind, text in DOCUMENTS.items():
            content = text.encode()
            document = parse(content, kind)
            assert document.texts
            translations = []
            for each in document.texts:
                form = format_message(each.format)
                options = pb.DecodingOptions(preserve=KINDS[kind].preserve)
                asked = pb.TranslateRequest(texts=[each.text], format=form, options=options)
                answer = await running.stub.Translate(asked)
                translations.append(answer.translations[0].hypotheses[0].text)
            expected = document.render(translations)
            changed += expected != content
            events, got, end = await translated(running, content, kind)
            assert got == expected, kind
            assert (end.content_bytes, list(end.models)) == (len(got), [bundle.manifest.name])
            assert events[0].progress.texts == len(document.texts)
            assert events[0].progress.texts_done == 0
            headers = {"content-type": f"{kind}; charset=utf-8"}
            answer = await running.request("POST", "/v1/documents", content, headers)
            assert (answer.status, answer.body) == (200, expected)
            assert answer.headers["content-type"] == kind
    assert changed == len(DOCUMENTS)


async def test_a_document_of_many_windows_is_in_order_and_in_messages_that_every_client_takes():
    content = "\n".join(f"{number:05}" for number in range(12_000)).encode()
    async with serving(max_request_texts=8, max_queue_size=64, rows=32) as running:
        events, got, end = await translated(running, content)
        assert got == content
        assert end.timing.total.ToTimedelta()
        assert max(event.ByteSize() for event in events) <= 64 * 1024 + 16
        kinds = [name for name, _ in itertools.groupby(event.WhichOneof("event") for event in events)]
        assert kinds == ["progress", "content", "end"]
        done = [event.progress.texts_done for event in events if event.HasField("progress")]
        assert done == sorted(done)
        assert done[-1] == 12_000
        empty, nothing, end = await translated(running, b"")
        assert (empty[0].progress.texts, nothing, end.content_bytes) == (0, b"", 0)


async def test_other_callers_are_answered_while_a_document_fills_its_callers_part_of_the_queue():
    async with serving(max_request_texts=8, max_queue_size=16, rows=4, caller_header="caller") as running:
        document = asyncio.create_task(translated(running, lines(2000)))
        await asyncio.sleep(0.2)
        for _ in range(20):
            asked = pb.TranslateRequest(texts=["abc"])
            answer = await running.stub.Translate(asked, metadata=(("caller", "another"),))
            assert answer.translations[0].hypotheses[0].text == "abc"
        assert not document.done()
        _, got, _ = await document
        assert got == lines(2000)


async def test_a_key_pays_for_a_document_little_by_little(tmp_path):
    token = make_token()
    keys = key_file(tmp_path, reader=holder(token, sentences_in_flight=6, sentences_per_second=200))
    async with serving(keys_file=keys, rows=32) as running:
        began = asyncio.get_running_loop().time()
        assert (await translated(running, lines(500), metadata=bearer(token)))[1] == lines(500)
        assert asyncio.get_running_loop().time() - began > 1  # the rate of the key
        await running.stub.Translate(pb.TranslateRequest(texts=["a"] * 6), metadata=bearer(token))  # all is given back
        options = pb.DecodingOptions(split_sentences=True)
        failure = await refusal(running, lines(5) + b"\n" + b"a! " * 7, metadata=bearer(token), options=options)
        assert failure.message.startswith("content: line 6: has 7 sentences, and its key may have 6")


async def test_a_key_of_a_low_rate_makes_progress(tmp_path):
    token = make_token()
    keys = key_file(tmp_path, reader=holder(token, sentences_per_second=30))
    async with serving(
        keys_file=keys, rows=32, max_request_texts=128, max_queue_size=256, request_timeout=1.5
    ) as running:
        _, got, _ = await translated(running, lines(150), metadata=bearer(token))
        assert got == lines(150)


async def test_texts_of_more_sentences_than_a_request_may_have_are_several_requests():
    content = b"\n".join([b"A b", b"", b"A! b! c! d! e", b"x"] * 40)
    options = pb.DecodingOptions(split_sentences=True)
    async with serving(max_request_texts=8, max_queue_size=8, rows=8) as running:
        _, got, end = await translated(running, content, options=options)
        assert (got, end.treatment.sentences) == (content, 40 * 5)
        failure = await refusal(running, content + b"\n" + b"a! " * 9, options=options)
        assert failure.message.startswith("content: line 161: has too many sentences, at most 8 are accepted")


async def test_time_counts_from_the_last_progress():
    async with serving(max_request_texts=8, rows=2, request_timeout=1.5) as running:
        events, got, _ = await translated(running, lines(3000, "abcdefghij" * 2))
        assert got == lines(3000, "abcdefghij" * 2)
        assert len([event for event in events if event.HasField("progress")]) > 2, "it was too fast to show anything"
        running.backend.hold()
        failure = await refusal(running, lines(5))
        assert (failure.code.name, failure.reason) == ("DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")


@pytest.mark.parametrize("bytes_over_http", [0, 599, 80_000])
async def test_a_caller_who_goes_frees_its_rows(bytes_over_http):
    async with serving(rows=4, http_port=0) as running:
        running.backend.hold()
        if bytes_over_http:
            _, writer = await asyncio.open_connection("127.0.0.1", running.server.http_port)
            head = b"POST /v1/documents HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n"
            writer.write(head % bytes_over_http)
            await asyncio.sleep(0.1)  # the rest comes while the server waits for it
            writer.write(lines(120).ljust(bytes_over_http))
        else:
            message = pb.TranslateDocumentRequest(content=lines(120), mime_type="text/plain")
            call = running.stub.TranslateDocument(message)
            assert (await call.read()).progress.texts == 120
        await until(lambda: running.dispatcher.active_rows == 4)
        writer.close() if bytes_over_http else call.cancel()
        await asyncio.sleep(0.2)
        running.backend.release()
        await until(lambda: running.dispatcher.active_rows + running.dispatcher.waiting == 0)
        entries = [entry for entry in running.backend.log if entry[0] == "encode"]
        assert sum(entry[1] for entry in entries) <= 32, "the document went on"


async def test_faults_name_the_field_and_the_line():
    async with serving(max_message_bytes=100_000) as running:

        async def fault(content, kind="text/plain", **fields):
            failure = await refusal(running, content, kind, **fields)
            assert failure.code is grpc.StatusCode.INVALID_ARGUMENT
            return list(failure.fields)

        limit = await running.stub.ListModels(pb.ListModelsRequest())
        assert limit.limits.document_bytes == 100_000
        assert await fault(b"a", "application/pdf") == ["mime_type"]
        assert await fault(b"a", "") == ["mime_type"]
        assert await fault(b"a", replace_translations=True) == ["replace_translations"]
        assert await fault(b"a", options=pb.DecodingOptions(num_hypotheses=2)) == ["options.num_hypotheses"]
        assert await fault(b"a", options=pb.DecodingOptions(target_prefix="a")) == ["options.target_prefix"]
        assert await fault(b"a", options=pb.DecodingOptions(beam_size=-1)) == ["options.beam_size"]
        assert await fault(b"a", options=pb.DecodingOptions(preserve=["a"] * 33)) == ["options.preserve"]
        cue = DOCUMENTS["application/x-subrip"].encode()
        failure = await refusal(running, cue, "application/x-subrip", options=pb.DecodingOptions(preserve=["a"] * 31))
        assert failure.message == "options.preserve: has 31 entries, at most 30 are accepted"  # beside those of tags
        assert await fault(b"a\n\xff") == ["content"]
        for content, kind, line in [
            (b"a\nb\n\xff", "text/plain", 3),
            (b'<xliff version="1.2">\n<a></b></xliff>', "application/xliff+xml", 2),
            (b"a\n" * 9 + b"b" * 60_000, "text/plain", 10),
        ]:
            failure = await refusal(running, content, kind)
            assert f"line {line}:" in failure.message
        assert (await refusal(running, b"a" * 100_000)).reason == "MESSAGE_TOO_LARGE"


async def test_the_query_has_the_fields_of_the_request():
    async with serving(http_port=0) as running:

        async def ask(query, content=b"abcdef", **headers):
            sent = {"content-type": "text/plain", **headers}
            return await running.request("POST", f"/v1/documents?{query}", content, sent)

        assert (await ask("max_length=3&targetLanguage=en")).body == b"abc"
        assert (await ask("suppressed_phrases=y&suppressedPhrases=z&earlyStopping=true")).status == 200
        assert (await ask("", b" ")).body == b" "
        for query, field in {
            "beam_size=x": "options.beam_size",
            "beam_size=1&beamSize=2": "beam_size",
            "content=a": "content",
            "other=1": "other",
            "%ff=1": "query",
            "early_stopping=1": "options.early_stopping",
            "priority=9999999999": "priority",
            "terminology=a": "terminology",
        }.items():
            answer = await ask(query)
            assert (answer.status, answer.field) == (400, field)
        assert (await ask("", **{"content-encoding": "gzip"})).status == 415
        assert (await ask("", **{"content-type": "application/json"})).status == 415
        assert (await ask("", **{"content-type": "text/plain; charset=utf-16le"})).status == 415
        assert (await ask("", **{"content-type": 'text/markdown; charset="UTF-8"; variant=GFM'})).status == 200
        streamed = await ask("", accept="application/x-ndjson")
        parts = [json.loads(line) for line in streamed.body.splitlines()]
        assert [next(iter(part)) for part in parts] == ["progress", "progress", "content", "end"]


async def test_what_is_cut_and_lost_is_in_the_notes():
    long = "x" * 70  # more than two sentences of the model's length
    content = "\n".join(["ab", long] * 150).encode()
    term = pb.Term(source="ab", target="cd")
    async with serving(rows=16) as running:
        running.backend.takes_others = True
        _, _, end = await translated(running, content, options=pb.DecodingOptions(terminology=[term], beam_size=4))
        assert len(end.notes) == 100
        assert {note.line % 2 for note in end.notes if note.cut_sentences} == {0}
        assert end.treatment.cut_sentences >= 150
        assert len(end.treatment.terms) == 1


async def test_a_large_file_with_few_texts_is_not_written_on_the_event_loop(monkeypatch):
    threads = []
    render = PlacesDocument.render

    def rendered(*arguments):
        threads.append(threading.current_thread())
        return render(*arguments)

    monkeypatch.setattr(PlacesDocument, "render", rendered)
    content = b"!\n" * 1000
    async with serving() as running:
        assert (await translated(running, content))[1] == content
    assert threads
    assert threading.current_thread() not in threads


async def test_reports_of_terms_do_not_fill_the_memory():
    terms = [pb.Term(source=f"{number:03}", target="b") for number in range(32)]
    async with serving(max_request_texts=128, max_queue_size=256, rows=64) as running:
        running.backend.takes_others = True
        await translated(running, b"a", options=pb.DecodingOptions(terminology=terms))
        tracemalloc.start()
        try:
            _, _, end = await translated(running, lines(3000, "a"), options=pb.DecodingOptions(terminology=terms))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert [term.outcome for term in end.treatment.terms] == [pb.TERM_OUTCOME_NOT_FOUND] * 32
        assert peak < 7 << 20  # a report of each text takes 80 bytes


async def test_an_end_of_many_terms_is_a_message_that_every_client_takes(tmp_path):
    names = [f"{number:04x}" for number in range(4200)]
    terms = "".join(f"{name}\t\u03c0{name}\n" for name in names)  # which the model cannot spell
    (tmp_path / "g.zh.en.tsv").write_text(terms, encoding="utf-8")
    content = "\n".join(" ".join(names[begin : begin + 4]) for begin in range(0, len(names), 4)).encode()
    async with serving(glossaries=tmp_path, max_request_texts=128, max_queue_size=256, rows=64) as running:
        _, _, end = await translated(running, content, options=pb.DecodingOptions(glossaries=["g"]))
        assert len(end.treatment.terms) == 4096
