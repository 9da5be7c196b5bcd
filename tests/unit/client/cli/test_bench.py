"""translane bench: through a socket, and what it sends, measures and searches."""

import json
import math
import signal
import statistics
import time
from array import array
from collections import Counter
from itertools import islice

import grpc
import pytest

from fakes.translation_server import answer, fails, reason, refuses
from helpers.client_command import Command, shell
from translane.v1 import translation_pb2 as pb
from translane_client.bench.benchmark import RateSearch
from translane_client.bench.measurement import Measurement, late_requests_allowed, quantile
from translane_client.bench.requests import Text, arrivals, serialized_requests

BRIEF = ("--duration", "400ms", "--warm-up", "100ms")


def cells(command: Command) -> list[list[str]]:
    """The rows of the table, without its headings."""
    return [line.split() for line in command.out.splitlines()[1:]]


def test_rates_one_after_the_other(server, command, tmp_path):
    flags = ["--beam-size", "4", "--model", "zh-en", "--json", str(tmp_path / "bench.json")]
    assert command("bench", "--rate", "50", "100", *BRIEF, *flags) == 0
    slow, fast = cells(command)
    assert (slow[0], fast[0], slow[-1], fast[-1]) == ("50", "100", "-", "-")
    assert float(slow[1]) > 0
    sent = [request for request in server.requests if request.options.beam_size == 4 and request.model == "zh-en"]
    assert len(sent) == len(server.requests) > 20
    assert {len(request.texts) for request in sent} == {1}
    assert any("公园" in request.texts[0] for request in sent)  # our own sentences, in the model's language
    first, second = json.loads((tmp_path / "bench.json").read_text())["measurements"]
    assert (first["rate"], second["rate"]) == (50.0, 100.0)
    assert first["seconds"] == pytest.approx(0.4)
    assert 0 < first["latency_seconds"]["p50"] < 0.4


def test_an_open_loop_does_not_wait_for_answers(server, command):
    server.script.append(lambda request, _: answer(request))  # to the trial
    server.always = server.hang
    assert command("bench", "--rate", "100", *BRIEF, "--timeout", "300ms", "--connections", "2") == 1
    assert server.most_running > 4
    (row,) = cells(command)
    assert row[2:6] == ["-"] * 4
    assert row[6] == "DEADLINE_EXCEEDED"
    assert "translane bench: DEADLINE_EXCEEDED: no answer from" in command.err


def test_a_closed_loop_has_as_many_requests_under_way_as_clients(server, command):
    assert command("bench", "--clients", "1", "3", *BRIEF) == 0
    assert command.out.split()[0] == "clients"
    assert [row[0] for row in cells(command)] == ["1", "3"]
    assert server.most_running <= 3


def test_files_lengths_and_texts_per_request(server, command, tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("eins\t5\n\nzwei\tdrei\t9\n")
    assert command("bench", "-i", str(path), "--max-lengths", "--texts-per-request", "2", "--rate", "40", *BRIEF) == 0
    assert {(frozenset(request.texts), request.options.max_length) for request in server.requests} == {
        (frozenset({"eins", "zwei\tdrei"}), 9)
    }
    server.requests.clear()
    assert command("bench", "--input", "-", "--rate", "40", *BRIEF, stdin=b"drei\n") == 0
    assert {request.texts[0] for request in server.requests} == {"drei"}
    assert server.listings == 0


def test_tokens_are_counted_where_they_are_asked_for(server, command):
    def with_tokens(request, context):
        response = answer(request)
        response.translations[0].hypotheses[0].tokens.extend(["a", "b", "</s>"])
        response.translations[0].hypotheses.add(tokens=["c"])
        return response

    server.always = with_tokens
    assert command("bench", "--rate", "50", *BRIEF, "--tokens") == 0
    assert "tokens/s" in command.out
    (row,) = cells(command)
    assert float(row[6].replace(",", "")) == pytest.approx(4 * float(row[1]), abs=1)


def test_errors_are_counted_by_their_status_and_told_once(server, command):
    server.script.append(lambda request, _: answer(request))
    server.always = fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", reason("QUEUE_FULL"))
    assert command("bench", "--rate", "50", *BRIEF) == 1
    (row,) = cells(command)
    assert row[6] == "RESOURCE_EXHAUSTED"
    assert command.err.count("translane bench: RESOURCE_EXHAUSTED: the queue is full\n") == 1


def test_the_highest_rate_is_searched(server, command, tmp_path):
    path = tmp_path / "bench.json"
    flags = ["--find-rate", "--p95", "30s", "--rate", "20", "--trials", "2", "--json", str(path)]
    assert command("bench", *flags, *BRIEF) == 0
    *rows, found = command.out.splitlines()
    assert [line.split()[-1] for line in rows[1:]] == ["kept", "kept"]
    assert found == "highest rate that keeps p95 within 30000 ms: 30 sentences/s"
    assert json.loads(path.read_text())["highest_rate"] == 30.0


def test_a_search_begins_with_what_many_clients_get(server, command):
    server.always = lambda request, _: time.sleep(0.02) or answer(request)
    assert command("bench", "--find-rate", "--p95", "30s", "--trials", "1", *BRIEF) == 0
    assert command.out.startswith("64 clients get ")
    assert server.most_running > 1


def test_a_rate_that_cannot_be_kept_is_given_up(server, command):
    server.script.append(lambda request, _: answer(request))
    server.always = server.hang
    flags = ["--find-rate", "--p95", "50ms", "--rate", "100", "--trials", "1", "--duration", "20s", "--warm-up", "0"]
    assert command("bench", *flags) == 1
    (row, found) = command.out.splitlines()[1:]
    assert row.endswith("late")
    assert "unanswered" in row
    assert found == "no rate was found that keeps p95 within 50 ms; the lowest rate tried is 100 sentences/s"
    assert len(server.requests) < 1000  # of the 2000 that were to be sent


def test_what_the_server_refuses_ends_it_at_once(server, command):
    server.always = refuses(("options.beam_size", "beam_size must be from 1 to 4"))
    assert command("bench", "--beam-size", "9") == 1
    assert command.err == "translane bench: --beam-size: --beam-size must be from 1 to 4\n"
    assert len(server.requests) == 1


def test_files_are_told_about(command, tmp_path):
    assert command("bench", "--input", str(tmp_path / "none")) == 1
    assert "none: No such file or directory" in command.err
    assert command("bench", "--json", str(tmp_path / "none" / "x")) == 1
    assert "x: no file can be written in its folder" in command.err
    empty = tmp_path / "empty"
    empty.write_text("\n\n")
    assert command("bench", "-i", str(empty)) == 1
    assert "empty: no texts to send" in command.err
    for line in ("a", "a\t", "a\t0", "a\t-3", "a\t1.5", "a\t99999999999"):
        empty.write_text(line)
        assert command("bench", "-i", str(empty), "--max-lengths") == 1
        assert command.err.endswith("empty, line 1: a text, a tab and a positive number are needed\n")


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--source-language", "nl", "built-in sentences exist in zh, en, de only: -i FILE names a file of texts"),
        ("--model", "none", "the server has no model named 'none'"),
    ],
)
def test_a_server_without_what_is_asked_for(command, flag, value, sentence):
    assert command("bench", flag, value) == 1
    assert command.err == f"translane bench: {sentence}\n"


def test_a_search_that_is_broken_off_tells_what_it_has_found(server):
    flags = ["--find-rate", "--rate", "10", "--p95", "30s", "--warm-up", "0", "--duration", "500ms", "--trials", "99"]
    with shell(server.address, "bench", *flags) as process:
        lines = [process.stdout.readline().decode() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [line.split()[-1] for line in lines[1:]] == ["kept", "kept"]
    assert out.decode().splitlines()[-1].startswith("highest rate that keeps p95 within 30000 ms: ")


def test_ctrl_c_writes_what_there_is(server):
    with shell(server.address, "bench", "--clients", "1", "--warm-up", "0", "--duration", "600s") as process:
        server.wait_for_requests(3)  # the client has the answer to the second, the first that is measured
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    heading, row = out.decode().splitlines()
    assert heading.split()[0] == "clients"
    assert row.split()[0] == "1"
    assert float(row.split()[2]) > 0
    assert "broken off after" in err.decode()


# What the command bench sends and when, what it measures, and how it searches the highest rate.


def test_arrivals_are_a_poisson_process_that_the_seed_settles():
    times = list(islice(arrivals(20.0, seed=3), 20_000))
    assert times == list(islice(arrivals(20.0, seed=3), 20_000))
    assert times[0] != next(arrivals(20.0, seed=4))
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert min(gaps) >= 0
    assert statistics.mean(gaps) == pytest.approx(1 / 20, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 20, rel=0.03)  # that of an exponential distribution is its mean
    counts = Counter(map(int, times))  # in each second; and a Poisson count's variance is its mean
    assert statistics.variance(counts[second] for second in range(900)) == pytest.approx(20, rel=0.15)


def parsed(requests, count: int) -> list[pb.TranslateRequest]:
    return [pb.TranslateRequest.FromString(each) for each in islice(requests, count)]


def test_all_texts_are_sent_equally_often_in_another_order_for_another_seed():
    texts = [Text(str(number)) for number in range(10)]
    settings = pb.TranslateRequest(model="m", options=pb.DecodingOptions(beam_size=4))
    requests = parsed(serialized_requests(texts, 3, settings, seed=0), 20)
    assert {len(request.texts) for request in requests} == {3}
    assert set(Counter(text for request in requests for text in request.texts).values()) == {6}
    assert {(request.model, request.options.beam_size) for request in requests} == {("m", 4)}
    orders = {
        tuple(t for r in parsed(serialized_requests(texts, 1, settings, seed), 10) for t in r.texts)
        for seed in range(5)
    }
    assert len(orders) == 5


# What is measured: bounds, windows, quantiles, the table and its JSON.


def measured(*latencies: float, rate: float | None = 50.0, seconds: float = 10.0, **values) -> Measurement:
    clients = None if rate else 3
    measurement = Measurement(rate, clients, 1, 10.0, 14.0, seconds=seconds, latencies=array("d", latencies), **values)
    measurement.answered_within = len(latencies)
    return measurement


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.95, 95), (0.951, 96), (0.99, 99), (1.0, 100), (0.001, 1)]
)
def test_quantiles_are_values_that_occurred(share, expected):
    assert quantile(range(1, 101), share) == expected
    assert quantile([7.0], share) == 7.0
    assert math.isnan(quantile([], share))


def test_json_has_base_units():
    report = measured(0.1, 0.3, seconds=4.0, errors=Counter(UNAVAILABLE=1)).as_json()
    assert report["latency_seconds"] == {"p50": 0.1, "p95": 0.3, "p99": 0.3, "max": 0.3}
    assert (report["rate"], report["requests"], report["answered_per_second"]) == (50.0, 3, 0.5)
    assert (report["errors"], measured().as_json()["latency_seconds"]["p50"]) == ({"UNAVAILABLE": 1}, None)


def test_a_failure_is_infinitely_late_for_a_bound():
    assert measured(*[0.1] * 19, 9.0).keeps(0.5)
    assert not measured(*[0.1] * 18, 9.0, 9.0).keeps(0.5)
    assert measured(*[0.1] * 19, errors=Counter(UNAVAILABLE=1)).keeps(0.5)
    assert not measured(*[0.1] * 18, errors=Counter(UNAVAILABLE=1), unanswered=1).keeps(0.5)
    assert not measured().keeps(0.5)


@pytest.mark.parametrize("requests", [1, 19, 20, 21, 399, 400])
def test_what_may_be_late_is_what_the_bound_lets_be(requests):
    allowed = late_requests_allowed(requests)
    assert measured(*[0.1] * (requests - allowed), *[9.0] * allowed).keeps(0.5)
    assert not measured(*[0.1] * (requests - allowed - 1), *[9.0] * (allowed + 1)).keeps(0.5)


def test_what_is_measured_is_what_was_due_in_its_time():
    measurement = measured()
    assert [measurement.covers(at) for at in (9.9, 10.0, 13.9, 14.0)] == [False, True, True, False]


def test_notes_tell_of_a_generator_that_fell_behind_and_of_an_early_end():
    assert measured(0.1, lags=array("d", [0.004])).notes() == []
    assert measured(1.0, lags=array("d", [0.09])).notes() == []
    (note,) = measured(0.1, lags=array("d", [0.02])).notes()
    assert note.startswith("50 sentences/s: this generator could not keep up")
    assert "20 ms" in note
    (note,) = measured(0.1, rate=None, seconds=1.5, broken_off=True).notes()
    assert note == "3 clients: broken off after 1.5 s of measuring"


# The search for the highest rate that keeps a bound.


@pytest.mark.parametrize("capacity", [0.7, 3.0, 97.3, 100.0, 1234.5])
@pytest.mark.parametrize("start", [1.0, 90.0, 5000.0])
def test_the_search_finds_the_highest_rate_that_is_kept(capacity, start):
    search, tried = RateSearch(start, trials=60), []
    while (rate := search.next_rate()) is not None:
        tried.append(rate)
        search.tell(rate, is_kept=rate <= capacity)
    assert tried[0] == start
    assert search.kept is not None
    assert capacity / 1.04 <= search.kept <= capacity
    assert all(tried.count(rate) == (1 if rate <= capacity else 2) for rate in tried)
    assert len(set(tried)) < 30


def test_a_rate_that_fails_once_is_tried_again():
    search = RateSearch(100.0, trials=9)
    outcomes = iter([False, True, False, False, True])
    tried = []
    for is_kept in outcomes:
        rate = search.next_rate()
        assert rate is not None
        tried.append(rate)
        search.tell(rate, is_kept=is_kept)
    assert tried == pytest.approx([100.0, 100.0, 150.0, 150.0, math.sqrt(100.0 * 150.0)])
    assert (search.kept, search.failed) == (tried[-1], 150.0)
