import os

import pytest

from translane_server.access import shared_records
from translane_server.access.key_ring import KeyRing
from translane_server.access.keys import Key, KeyHolder, digest_of, make_token, write_keys
from translane_server.access.shared_allowances import SharedAllowances
from translane_server.access.shared_records import SharedRecords
from translane_server.errors import SentenceRateError, TooManySentencesError
from translane_server.observation.metrics import Metrics


@pytest.fixture
def parent():
    return SharedAllowances.create(3)


def joined(parent):
    return [SharedAllowances.join(parent.descriptor, number) for number in range(3)]


def test_holders_do_not_share(parent, clock):
    first, second, _ = joined(parent)
    first.allowance("a", KeyHolder(sentences_in_flight=1), clock).take(1)
    second.allowance("b", KeyHolder(sentences_in_flight=1), clock).take(1)


def test_front_ends_may_read_the_file_of_keys_in_any_order_and_at_any_time(parent, clock):
    names = [f"n{number}" for number in range(50)]
    first, second, _ = joined(parent)
    for front_end, order in ((first, names), (second, names[::-1])):
        for name in order:
            front_end.allowance(name, KeyHolder(sentences_in_flight=7), clock).take(3)
    assert {first.allowance(name, KeyHolder(), clock).in_flight for name in names} == {6}


def test_a_refused_request_counts_nowhere(parent, clock):
    first, second, _ = joined(parent)
    own, other = (each.allowance("a", KeyHolder(sentences_in_flight=5), clock) for each in (first, second))
    own.take(5)
    for _ in range(3):
        with pytest.raises(TooManySentencesError):
            other.take(1)
    assert own.in_flight == 5
    other.give_back(0)  # an account that took nothing is closed, too
    assert own.in_flight == 5


@pytest.fixture
def two_records(monkeypatch):
    monkeypatch.setattr(shared_records, "MOST_RECORDS", 2)


@pytest.mark.usefixtures("two_records")
def test_a_full_table_gives_up_the_holder_whose_bucket_was_used_longest_ago(clock):
    one = SharedAllowances.join(SharedAllowances.create(1).descriptor, 0)
    holder = KeyHolder(sentences_per_second=0.001)
    a, b, c = (one.allowance(name, holder, clock) for name in "abc")
    for each in (a, b):
        each.take(1)
        each.give_back(1)
        clock.now += 1
    c.take(1)  # in the record of a
    with pytest.raises(SentenceRateError):
        b.take(1)
    a.take(1)  # in the record of b, for c has a sentence in flight; a full bucket is all that a could win
    c.give_back(1)
    assert (a.in_flight, c.in_flight) == (1, 0)


@pytest.mark.usefixtures("two_records")
def test_a_holder_without_a_record_is_refused_for_a_while(clock):
    one = SharedAllowances.join(SharedAllowances.create(1).descriptor, 0)
    a, b, c = (one.allowance(name, KeyHolder(), clock) for name in "abc")
    a.take(1)
    b.take(1)
    with pytest.raises(TooManySentencesError, match="too many holders"):
        c.take(1)
    b.give_back(1)
    c.take(1)
    assert (a.in_flight, c.in_flight) == (1, 1)


def test_the_table_holds_what_files_of_keys_may_hold(clock):
    records = SharedRecords.create(64)
    assert os.fstat(records.descriptor).st_size == shared_records.MOST_RECORDS * 67 * 8
    one = SharedAllowances.join(records.descriptor, 63)
    allowances = [one.allowance(f"n{number}", KeyHolder(), clock) for number in range(shared_records.MOST_RECORDS)]
    for number, allowance in enumerate(allowances, 1):
        allowance.take(number)
    assert [each.in_flight for each in allowances] == list(range(1, len(allowances) + 1))


def test_a_process_of_a_front_end_does_not_inherit_the_memory(parent):
    os.set_inheritable(parent.descriptor, True)
    joined(parent)
    assert not os.get_inheritable(parent.descriptor)


def test_rings_of_two_front_ends_count_together(tmp_path, parent):
    token = make_token()
    holder = KeyHolder(keys=(Key(sha256=digest_of(token).hex()),), sentences_in_flight=3)
    path = tmp_path / "keys.toml"
    path.write_text(write_keys({"a": holder}))
    rings = [KeyRing(path, Metrics(), shared=each) for each in joined(parent)]
    calls = [ring.admit([("authorization", f"Bearer {token}")], "ipv4:192.0.2.1:1") for ring in rings]
    calls[0].pay(2)
    calls[1].pay(1)
    with pytest.raises(TooManySentencesError):
        calls[2].pay(1)
    calls[0].close()
    calls[2].pay(2)
