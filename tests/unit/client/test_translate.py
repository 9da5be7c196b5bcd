"""What both clients do with texts: the same cases run against either."""

import inspect
import math
import re
import subprocess
import sys
import threading
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.translation_server import PATIENCE, FakeServer, answer, bad_fields, fails, reason, refuses, translated
from translane import AsyncClient, Client, FinishReason, Internal, InvalidArgument, TermOutcome, Timing
from translane.v1 import translation_pb2 as pb
from translane_client._core import END, MOST_BYTES, Batches
from translane_client._requests import score_job, translate_job


def test_one_text_gives_one_translation(server, connect):
    text = " 猫\n\x00👩‍👩‍👧 \u2028"
    translation = connect(server.address).translate(text)
    assert str(translation) == translation.text == f"<{text}>"
    assert translation.score == -0.5
    assert translation.finish_reason is FinishReason.END_OF_SENTENCE
    assert (translation.source_tokens, translation.model) == (len(text), "zh-en")
    assert translation.timing == Timing(queue=0.5, encode=0.0, decode=0.0, total=2.0)
    assert server.listings == 0


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 50])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_lists_keep_order_and_count(server, connect, count, concurrency):
    pairs = [(f"text {index}", "x" * index) for index in range(count)]
    client = connect(server.address, batch_size=4, concurrency=concurrency)
    translations = client.translate([text for text, _ in pairs])
    assert [each.text for each in translations] == [translated(text) for text, _ in pairs]
    for scores in (client.score(pairs), client.score_iter(iter(pairs))):
        assert [score.total_log_prob for score in scores] == [-index - 1.0 for index in range(count)]
    assert sum(server.sizes()) == 3 * count
    assert max(server.sizes(), default=0) <= 4
    assert server.most_running <= concurrency


def test_the_first_batch_being_slowest_changes_no_order(server, connect):
    others_arrived = threading.Event()

    def slow(request, context):
        others_arrived.wait(10)
        return answer(request)

    def last(request, context):
        others_arrived.set()
        return answer(request)

    server.by_text(a=slow, c=last)
    client = connect(server.address, batch_size=1, concurrency=3)
    assert [str(each) for each in client.translate(["a", "b", "c", "d"])] == ["<a>", "<b>", "<c>", "<d>"]


@pytest.mark.parametrize(
    ("limits", "settings", "size"),
    [
        ({"max_request_texts": 3}, {}, 3),
        ({"max_queue_size": 20}, {"concurrency": 4}, 5),
        ({"max_queue_size": 3}, {"concurrency": 4}, 1),
        ({"max_queue_size": 1000}, {"concurrency": 4}, 64),
        ({"max_request_texts": 0, "max_queue_size": 0}, {}, 64),  # there are none
    ],
)
def test_batches_fit_the_servers_limits_which_are_asked_for_once(server, connect, limits, settings, size):
    for name, value in limits.items():
        setattr(server.limits, name, value)
    client = connect(server.address, **settings)
    for _ in range(2):
        assert len(client.translate(["a"] * 70)) == 70
    assert max(server.sizes()) == size
    assert server.listings == 1


def test_batches_stay_below_the_longest_message(server, connect):
    long = "猫" * 100_000  # 300 kB each
    client = connect(server.address, concurrency=1)
    assert len(client.translate([long] * 8 + ["a"] * 3)) == 11
    assert server.sizes() == [3, 3, 5]


def test_a_request_holds_what_was_set_and_nothing_else(server, connect):
    client = connect(server.address)
    client.translate("a")
    client.translate(
        "a",
        model="m",
        source_language="zh",
        target_language="en",
        priority=-3,
        max_length=0,
        beam_size=None,
        early_stopping=False,
        suppressed_phrases=["x", "y"],
        terminology={"猫": "cat"},
    )
    options = pb.DecodingOptions(
        max_length=0,
        early_stopping=False,
        suppressed_phrases=["x", "y"],
        terminology=[pb.Term(source="猫", target="cat")],
    )
    assert server.requests == [
        pb.TranslateRequest(texts=["a"], options=pb.DecodingOptions()),
        pb.TranslateRequest(
            texts=["a"], model="m", source_language="zh", target_language="en", priority=-3, options=options
        ),
    ]


@pytest.mark.parametrize(
    ("method", "arguments", "settings", "message"),
    [
        ("translate", ["a"], {"beams": 3}, "beams"),
        ("translate", ["a"], {"max_length": "3"}, "max_length"),
        ("translate", ["a"], {"timeout": 0}, "timeout"),
        ("translate", ["a"], {"priority": 2**31}, "priority: an integer from -2147483648 to 2147483647 is needed"),
        ("translate", ["a"], {"timeout": math.nan}, "timeout"),
        ("translate", ["a"], {"format": "docx"}, "format must be one of text, html, markdown, xliff, not 'docx'"),
        ("translate", [["a", b"b"]], {}, r"texts\[1\]"),
        ("translate", [[None]], {}, r"texts\[0\]"),
        ("translate_iter", ["abc"], {}, "translate"),
        ("translate_stream", [b"a"], {}, "text must be a str"),
        ("translate_stream", ["a"], {"beams": 3}, "beams"),
        ("translate_stream", ["a"], {"timeout": 0}, "timeout"),
        ("translate_document", ["a", "text/plain"], {}, "content must be bytes, not str"),
        ("translate_document", [b"a", b"text/plain"], {}, "mime_type must be a str"),
        (
            "translate_document",
            [b"a", "text/plain"],
            {"replace_translations": "no"},
            "replace_translations must be a bool, not 'no'",
        ),
        ("translate_document", [b"a", "text/plain"], {"beams": 3}, "beams"),
        ("score", [[("a", "b")]], {"beam_size": 3}, "unknown option 'beam_size'"),
        ("score", [[("a", "b")]], {"return_tokens": "no"}, "return_tokens: a bool is needed, not 'no'"),
        ("score", [[("a", "b")]], {"model": 3}, "model: a str is needed, not 3"),
        ("score", [[("a", "b"), "ab"]], {}, r"inputs\[1\] must be a pair of source and target, not 'ab'"),
        ("score", [[("a", "b", "c")]], {}, r"inputs\[0\] must be a pair"),
        ("score", [[None]], {}, r"inputs\[0\] must be a pair"),
        ("score", [("a", "b")], {}, r"inputs\[0\] must be a pair of source and target, not 'a'"),
        ("score", [[("a", b"b")]], {}, r"inputs\[0\]\.target must be a str, not bytes"),
        ("score", [[("a", "b"), (1, "b")]], {}, r"inputs\[1\]\.source must be a str, not int"),
    ],
)
def test_arguments_that_make_no_sense_are_named_at_once(server, connect, method, arguments, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(connect(server.address), method)(*arguments, **settings)
    assert not server.requests


@pytest.mark.parametrize(
    ("method", "made_of", "field"),
    [("translate_iter", str, "texts[{}]"), ("score_iter", lambda n: (str(n), "x" * n), "inputs[{}].target")],
)
def test_a_failed_batch_names_the_callers_index_and_stops_the_rest(server, connect, method, made_of, field):
    server.by_text(**{"6": refuses((field.format(1), "too long"))})
    answers = getattr(connect(server.address, batch_size=5, concurrency=2), method)(map(made_of, range(1000)))
    received: list[Any] = []
    with pytest.raises(InvalidArgument, match=f"^{re.escape(field.format(6))}: too long$") as caught:
        received.extend(answers)
    assert len(received) == 5
    assert caught.value.field == field.format(6)
    assert len(server.requests) <= 3


@pytest.mark.parametrize("count", [3, 12])
def test_an_error_of_the_callers_iterator_comes_after_the_answers_before_it(server, connect, count):
    def texts():
        yield from map(str, range(count))
        raise OSError("the disk is gone")

    received: list[str] = []
    with pytest.raises(OSError, match="the disk is gone"):
        received.extend(each.text for each in connect(server.address, batch_size=5).translate_iter(texts()))
    assert received == [f"<{number}>" for number in range(count)]


def test_a_request_that_is_too_long_is_sent_in_parts(server, connect):
    too_long = reason("REQUEST_TOO_LONG"), bad_fields(("texts[2]", "has too many sentences"))
    refuse = fails(grpc.StatusCode.INVALID_ARGUMENT, "too long", *too_long)

    def at_most_two(request, context):
        return answer(request) if len(request.texts) <= 2 else refuse(request, context)

    server.always = at_most_two
    texts = [str(number) for number in range(20)]
    found = connect(server.address, batch_size=8).translate(texts)
    assert [each.text for each in found] == [f"<{each}>" for each in texts]
    server.always = refuse
    with pytest.raises(InvalidArgument, match="too long"):
        connect(server.address, batch_size=8).translate(texts)


def test_reading_runs_at_most_the_window_ahead(server, connect):
    read = 0

    def texts():
        nonlocal read
        for read in range(1, 201):
            yield str(read)

    received = 0
    for received, translation in enumerate(
        connect(server.address, batch_size=5, concurrency=3).translate_iter(texts()), 1
    ):
        assert translation.text == f"<{received}>"
        assert read - (received - 1) <= 15
    assert received == 200


def test_leaving_early_cancels_what_is_under_way(server, connect):
    def first(request, context):
        server.wait_for_requests(3)
        return answer(request)

    server.by_text(a=first, b=server.hang, c=server.hang)
    translations = connect(server.address, batch_size=1, concurrency=3).translate_iter(iter(["a", "b", "c", "d"]))
    assert next(translations).text == "<a>"
    translations.close()
    assert server.cancelled.wait(PATIENCE)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "settings",
    [
        *({"batch_size": 0}, {"concurrency": 0}, {"timeout": -1.0}),
        *({"connect_timeout": wrong} for wrong in (0, float("inf"), float("nan"))),
    ],
)
def test_settings_that_make_no_sense_are_refused(connect, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        connect("localhost", **settings)


def test_credentials_make_the_channel_secure(connect):
    with FakeServer().start(grpc.local_server_credentials()) as server:
        client = connect(server.address, credentials=grpc.local_channel_credentials())
        assert client.translate("a").text == "<a>"


def test_what_a_later_protocol_says_is_unspecified(server, connect):
    later: Any = 99
    hypothesis = pb.Hypothesis(text="a cat", finish_reason=later)
    treatment = pb.Treatment(terms=[pb.TermReport(source="猫", target="cat", outcome=later)])
    translation = pb.Translation(hypotheses=[hypothesis], treatment=treatment)
    server.always = lambda request, context: pb.TranslateResponse(translations=[translation])
    found = connect(server.address).translate("猫")
    assert found.hypotheses[0].finish_reason is FinishReason.UNSPECIFIED
    assert [report.outcome for report in found.treatment.terms] == [TermOutcome.UNSPECIFIED]


def test_every_outcome_of_the_protocol_is_known():
    numbers = set(pb.TermOutcome.values()) - {pb.TERM_OUTCOME_UNSPECIFIED}
    known = {pb.TermOutcome.Name(number).removeprefix("TERM_OUTCOME_").lower() for number in numbers}
    assert known | {"unspecified"} == {outcome.value for outcome in TermOutcome}


@pytest.mark.parametrize(
    ("method", "given", "field"),
    [
        ("translate", ["a", "b", "\ud800"], "texts[2]"),
        ("score", [("a", "b"), ("a", "b"), ("a", "\ud800")], "inputs[2].target"),
        ("translate_stream", "\ud800", "text"),
    ],
)
def test_a_lone_surrogate_is_named_by_the_callers_index(server, connect, method, given, field):
    with pytest.raises(InvalidArgument, match=f"{re.escape(field)} is not valid Unicode") as caught:
        getattr(connect(server.address, batch_size=2), method)(given)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("method", "given", "answered"),
    [
        ("translate", "a", pb.TranslateResponse()),
        ("translate", "a", pb.TranslateResponse(translations=[pb.Translation()])),
        ("score", [("a", "b")], pb.ScoreResponse()),
        ("translate_stream", "a", [pb.TranslateStreamResponse(text_delta="a")]),
    ],
)
def test_an_answer_that_breaks_the_protocol_is_refused(server, connect, method, given, answered):
    server.always = lambda request, context: answered
    with pytest.raises(Internal, match=r"the server (answered|ended)"):
        list(getattr(connect(server.address), method)(given))


def test_a_closed_client_refuses(server, connect):
    client = connect(server.address)
    client.translate("a")
    client.close()
    client.close()
    for ask in (client.translate, lambda text: next(client.translate_stream(text))):
        with pytest.raises(RuntimeError, match="closed"):
            ask("a")


@given(
    st.lists(st.tuples(st.integers(0, 400_000), st.sampled_from("aé我😀")), max_size=12),
    st.integers(0, MOST_BYTES),
    st.booleans(),
)
def test_a_request_of_several_texts_is_no_larger_than_a_server_takes(sizes, overhead, pairs):
    texts: list[Any] = [character * (size // len(character.encode())) for size, character in sizes]
    if pairs:
        job: Any = score_job({})
        texts = [(text[::2], text[1::2]) for text in texts]
    else:
        job = translate_job({"model": "m" * overhead})
    cut = list(_all(Batches(texts, 64, job)))
    assert [text for items, _ in cut for text in items] == texts
    for items, offset in cut:
        size = job.call(items, offset).request.ByteSize()
        assert len(items) == 1 or size - job.overhead <= max(1 << 14, MOST_BYTES - job.overhead)


def _all(batches: Batches[Any]):
    while True:
        steps = batches.next()
        try:
            effect = next(steps)
            while True:
                effect = steps.send(next(effect.source, END))
        except StopIteration as end:
            if not end.value[0]:
                return
            yield end.value


def test_both_clients_have_the_same_methods_and_parameters():
    def face(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in vars(kind).items()
            if inspect.isfunction(value) and (not name.startswith("_") or name == "__init__")
        }

    assert face(Client) == face(AsyncClient)


def test_the_clients_import_nothing_heavy():
    heavy = {"numpy", "torch", "onnxruntime", "pydantic", "tqdm", "opentelemetry", "translane_server"}
    program = f"import sys; from translane import AsyncClient, Client; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
