"""A Translator answers and refuses as a client of a server does, and leaves nothing behind."""

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from pathlib import Path

import psutil
import pytest
from integration.targets.test_errors import WRONG, error_of, told

from helpers.client_calls import CALLS, ask, ask_async
from helpers.file_server import wait_until
from helpers.reliability.cases import SENTENCES
from helpers.server_process import BUNDLE
from translane import (
    AsyncTranslator,
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
    TranslationStream,
    Translator,
)
from translane.command_error import CommandError
from translane.options import float32

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LONG = "".join(SENTENCES) * 20


@pytest.fixture(scope="module")
def glossaries(flags):
    return Path(flags[0].partition("=")[2])


@pytest.fixture(scope="module")
def translator(glossaries):
    with Translator(BUNDLE, glossaries=glossaries) as made:
        yield made


@pytest.fixture
def processes(monkeypatch, request):
    """Finds the other processes that the test has started, by what they have in their environment."""
    mark = request.node.name
    monkeypatch.setenv("MARK", mark)

    def found():
        pids = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile, or is somebody else's
                if each.pid != os.getpid() and each.environ().get("MARK") == mark:
                    pids.append(each.pid)
        return pids

    return found


def as_sent(value):
    """The same with floats of 32 bits, as which they travel to a client."""
    if isinstance(value, float):
        return float32(value)
    if isinstance(value, list | tuple):
        return [as_sent(each) for each in value]
    if is_dataclass(value):
        return [(each.name, as_sent(getattr(value, each.name))) for each in fields(value)]
    return value


def test_threads_get_the_answers_of_a_client(translator, expected):
    calls = [*CALLS, *reversed(CALLS)]
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda call: ask(translator, call), calls))
    assert as_sent(answers) == as_sent([expected(call) for call in calls])


async def test_tasks_get_the_answers_of_a_client(glossaries, expected):
    async with AsyncTranslator([BUNDLE], glossaries=glossaries) as translator:
        answers = await asyncio.gather(*(ask_async(translator, call) for call in CALLS))
    assert as_sent(answers) == as_sent([expected(call) for call in CALLS])


def test_what_it_says_of_itself_is_what_a_server_says(translator, undisturbed):
    assert translator.server_info() == undisturbed.server_info()
    assert translator.models() == undisturbed.models()


def test_any_number_of_texts_is_answered_in_order_and_read_as_it_is_needed(translator, undisturbed):
    read = []

    def texts():
        for number in itertools.count():
            read.append(number)
            yield f"{SENTENCES[number % len(SENTENCES)]}{number}"

    found = translator.translate_iter(texts())
    first = [each.text for each in itertools.islice(found, 600)]
    assert len(read) < 4000
    found.close()
    wanted = list(itertools.islice(texts(), 600))
    assert first == [each.text for each in undisturbed.translate_iter(iter(wanted))]
    with pytest.raises(InvalidArgument) as caught:
        translator.translate([*wanted, LONG], split_sentences=False)
    assert caught.value.field == "texts[600]"


def test_an_error_of_the_callers_iterator_comes_after_the_answers_before_it(translator):
    def texts():
        yield from SENTENCES
        raise OSError("the disk is gone")

    received: list[str] = []
    with pytest.raises(OSError, match="the disk is gone"):
        received.extend(each.text for each in translator.translate_iter(texts()))
    assert received == [each.text for each in translator.translate(SENTENCES)]


def test_many_paragraphs_are_translated_beside_a_document(translator):
    """In requests of as many sentences as the queue takes, and in turn."""
    paragraphs = [f"{''.join(SENTENCES[:10])}{number}" for number in range(150)]
    with ThreadPoolExecutor(2) as threads:
        document = threads.submit(translator.translate_document, "\n".join(SENTENCES * 20).encode(), "text/plain")
        stream = threads.submit(lambda: "".join(translator.translate_stream("".join(SENTENCES * 5))))
        found = translator.translate(paragraphs, max_length=2)
        assert len(found) == 150
        assert document.result().content
        assert stream.result()


def test_ctrl_c_ends_an_iterator(translator):
    texts = (SENTENCES[0] for _ in itertools.count())
    threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        for _ in translator.translate_iter(texts):
            pass
    assert translator.translate(SENTENCES[0]).text
    for method in (translator.translate_iter, translator.score_iter):
        with pytest.raises(TypeError, match="one text is for translate"):
            method("猫狗")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"priority": "a"}, "priority: an integer is needed, not 'a'"),
        ({"model": 3}, "model: a str is needed, not 3"),
        ({"beams": 2}, "unknown option 'beams'"),
    ],
)
def test_what_makes_no_sense_in_a_request_is_named(translator, request_, message):
    with pytest.raises(TypeError, match=message):
        translator.translate("猫", **request_)
    with pytest.raises(TypeError, match=message):
        translator.translate_document(b"a", "text/plain", **request_)


async def test_an_iterator_that_is_cancelled_at_once_warns_of_nothing(glossaries):
    """A warning is an error here: the calls that it has not begun are no coroutines that nobody awaits."""
    async with AsyncTranslator([BUNDLE], glossaries=glossaries) as translator:
        for found in (translator.translate_iter(["a"] * 2000), translator.score_iter([("a", "b")] * 2000)):
            reading = asyncio.create_task(anext(found))
            asyncio.get_running_loop().call_soon(reading.cancel)
            with pytest.raises(asyncio.CancelledError):
                await reading
    gc.collect()


def test_a_deadline_and_the_end_of_a_stream_free_the_rows(translator):
    with pytest.raises(DeadlineExceeded):
        translator.translate([LONG] * 2, beam_size=8, timeout=0.2)
    for leave in (TranslationStream.close, lambda stream: stream.__exit__()):
        stream = translator.translate_stream(LONG)
        assert next(stream)
        leave(stream)
        with pytest.raises(Cancelled):
            list(stream)
    waiting = translator.translate_stream(LONG, beam_size=8)
    threading.Timer(0.2, waiting.close).start()
    with pytest.raises(Cancelled):
        list(waiting)
    begun = time.monotonic()
    assert translator.translate(SENTENCES[0]).text
    assert time.monotonic() - begun < 5


def test_closing_ends_calls_and_processes(processes):
    translator = Translator(BUNDLE)
    assert processes()
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(translator.translate, [LONG] * 2, beam_size=8) for _ in range(2)]
        time.sleep(0.5)
        translator.close()
        for call in calls:
            with pytest.raises(Cancelled):
                call.result()
    translator.close()
    assert not processes()
    with pytest.raises(RuntimeError, match="closed"):
        translator.translate("a")


def test_translators_may_start_at_the_same_time(processes):
    """Each has a process that starts ahead, and takes no other one's."""

    def first_answer(_):
        with Translator(BUNDLE, workers=1) as translator:
            return translator.translate(SENTENCES[0]).text

    with ThreadPoolExecutor(3) as threads:
        assert len(set(threads.map(first_answer, range(3)))) == 1
    assert not processes()


def test_nothing_is_left_of_a_translator_that_nobody_has_or_that_is_refused(processes):
    before = threading.active_count()
    Translator(BUNDLE)
    gc.collect()
    with pytest.raises(CommandError, match="nowhere"):
        Translator("nowhere")
    with pytest.raises(CommandError, match=r"workers: .*, not 0"):
        Translator(BUNDLE, workers=0)
    with pytest.raises(CommandError, match=r"replicas: .* workers="):
        Translator(BUNDLE, replicas=1)
    assert not processes()
    wait_until(lambda: threading.active_count() <= before, 10)


def test_what_is_told_of_progress_may_close_but_not_ask(processes):
    """It is told on the thread that would answer."""
    translator = Translator(BUNDLE)
    with pytest.raises(RuntimeError, match="progress"):
        translator.translate_document(b"a", "text/plain", progress=lambda _: print(translator.models()))
    with pytest.raises(Cancelled):
        translator.translate_document(b"a", "text/plain", progress=lambda _: translator.close())
    wait_until(lambda: not processes(), 10)


def test_a_translator_closes_beside_an_iterator_that_never_goes_on(processes):
    asked, goes_on = threading.Event(), threading.Event()

    def texts():
        asked.set()
        goes_on.wait(60)
        yield "a"

    with Translator(BUNDLE) as translator, ThreadPoolExecutor(1) as thread:
        found = thread.submit(list, translator.translate_iter(texts()))
        assert asked.wait(20)
        translator.close()
        with pytest.raises(Cancelled):
            found.result(timeout=20)
    assert not processes()
    goes_on.set()


async def test_a_cell_of_a_notebook_runs_twice(processes):
    """Cells run within a running event loop, and nobody closes what the cell before has made."""
    cell = "translator = Translator(BUNDLE); text = translator.translate('我有一只猫').text"
    names = {"Translator": Translator, "BUNDLE": BUNDLE}
    counts = []
    for _ in range(2):
        exec(cell, names)
        assert names["text"] == "I have a cat."
        counts.append(len(processes()))
    assert counts[0] == counts[1] > 0
    names.clear()
    gc.collect()
    assert not processes()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("texts, stream = translator.translate_iter(['a'] * 2000), translator.translate_stream('a')\nnext(texts)", 0),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", -2),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_no_process_outlives_the_program_however_it_ends(processes, end, code):
    program = f"""
import os, signal, time
from translane import Translator
translator = Translator({str(BUNDLE)!r})
print(translator.translate("我有一只猫").text, flush=True)
if os.fork() == 0:
    try:
        translator.translate("a")
    except RuntimeError as error:
        print("child:", error, flush=True)
    translator.close()
    os._exit(0)
os.wait()
print(translator.translate("我有一只猫").text, flush=True)
{end}
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    child = "child: a translator does not survive a fork: make one in the child"
    assert ran.stdout.splitlines() == ["I have a cat.", child, "I have a cat."]
    assert ran.returncode == code
    assert "Exception ignored" not in ran.stderr
    wait_until(lambda: not processes(), 10)


@pytest.mark.parametrize(
    ("call", "kind", "reason", "field"),
    [each for each in WRONG if each[1] is not ResourceExhausted],  # there is no message
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_wrong_call_is_told_as_a_server_tells_it(translator, undisturbed, call, kind, reason, field):
    error = error_of(translator, call)
    assert told(error) == told(error_of(undisturbed, call))
    assert (type(error), error.reason) == (kind, reason)
