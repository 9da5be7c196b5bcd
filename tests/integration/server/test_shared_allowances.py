"""Front ends, as processes of their own, count what one holder of keys takes."""

import contextlib
import fcntl
import subprocess
import sys
import time

import pytest

from translane_server.access.keys import KeyHolder
from translane_server.access.shared_allowances import SharedAllowances
from translane_server.access.shared_records import SharedRecords
from translane_server.errors import TooManySentencesError

# A front end: it joins, says so, waits for a word, and says what came of it.
BEGIN = """
import random, sys
from translane_server.access.keys import KeyHolder
from translane_server.access.shared_allowances import SharedAllowances
from translane_server.access.shared_records import SharedRecords, digest_of_name
from translane_server.errors import SentenceRateError, TooManySentencesError
descriptor, number = map(int, sys.argv[1:])
shared = SharedAllowances.join(descriptor, number)
print("joined", flush=True)
input()
"""

TAKES_ALL = """
allowance = shared.allowance("a", KeyHolder(sentences_in_flight=9000), lambda: 100.0)
taken = 0
try:
    while True:
        allowance.take(1)
        taken += 1
except TooManySentencesError:
    print(taken)
"""

TAKES_AND_GIVES_BACK = """
allowance = shared.allowance("a", KeyHolder(sentences_in_flight=20), lambda: 100.0)
choice, held = random.Random(number), 0
for _ in range(5000):
    size = choice.randint(1, 7)
    try:
        allowance.take(size)
    except TooManySentencesError:
        allowance.give_back(held)
        held = 0
    else:
        held += size
        assert allowance.in_flight <= 20
print(held)
"""

SPENDS_A_BUCKET = """
allowance = shared.allowance("a", KeyHolder(sentences_per_second=9000), lambda: 100.0)
taken = 0
try:
    while True:
        allowance.take(1)
        taken += 1
except SentenceRateError:
    print(taken)
"""

SPENDS_FOR_A_WHILE = """
allowance = shared.allowance("a", KeyHolder(sentences_per_second=2000))
taken = 0
for _ in range(20000):
    try:
        allowance.take(1)
        taken += 1
    except SentenceRateError:
        pass
print(taken)
"""

HOLDS_A_LOCK = """
allowance = shared.allowance("a", KeyHolder())
allowance.take(5)
records = SharedRecords(descriptor)
records.lock(digest_of_name("a"), 0)
print("locked", flush=True)
input()
"""

HAMMERS = """
allowance = shared.allowance("a", KeyHolder())
print("begun", flush=True)
while True:
    allowance.take(3)
    allowance.give_back(2)
    allowance.take(1)
    allowance.give_back(2)
"""


class FrontEnd:
    """A process that joins."""

    def __init__(self, shared, number, program):
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN + program, str(shared.descriptor), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[shared.descriptor],
        )

    def hear(self):
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def go(self):
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=20)


@pytest.fixture
def shared():
    return SharedAllowances.create(3)


@pytest.fixture
def front_ends(shared):
    """Starts front ends that do the same, and returns those that have joined."""
    with contextlib.ExitStack() as stack:

        def start(program, numbers=(0, 1)):
            begun = [FrontEnd(shared, number, program) for number in numbers]
            for each in begun:
                stack.callback(each.kill)
            assert [each.hear() for each in begun] == ["joined"] * len(begun)
            for each in begun:
                each.go()
            return begun

        yield start


def answers(begun):
    return [int(each.process.communicate(timeout=50)[0]) for each in begun]


def test_all_that_is_taken_is_the_limit(front_ends):
    assert sum(answers(front_ends(TAKES_ALL))) == 9000


def test_the_limit_holds_at_every_moment_and_nothing_is_lost(front_ends, shared):
    held = answers(front_ends(TAKES_AND_GIVES_BACK))
    assert SharedAllowances(SharedRecords(shared.descriptor), 2).allowance("a", KeyHolder()).in_flight == sum(held)


def test_all_that_is_spent_is_the_bucket(front_ends):
    assert sum(answers(front_ends(SPENDS_A_BUCKET))) == 9000


def test_a_rate_holds_for_two_processes(front_ends):
    began = time.monotonic()
    taken = answers(front_ends(SPENDS_FOR_A_WHILE))
    assert 2000 < sum(taken) <= 2000 + 2000 * (time.monotonic() - began)


def test_a_process_that_is_killed_leaves_no_lock_and_its_part_is_given_back(front_ends, shared):
    own = SharedAllowances.join(shared.descriptor, 0).allowance("a", KeyHolder(sentences_in_flight=5))
    (holding,) = front_ends(HOLDS_A_LOCK, numbers=[1])
    assert holding.hear() == "locked"
    with pytest.raises(BlockingIOError):
        fcntl.lockf(shared.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    holding.kill()
    with pytest.raises(TooManySentencesError, match="5 sentences of this key are in flight"):
        own.take(1)
    shared.forget(1)
    own.take(5)


def test_a_process_that_is_killed_at_any_moment_leaves_nothing(front_ends, shared):
    own = SharedAllowances.join(shared.descriptor, 0).allowance("a", KeyHolder(sentences_in_flight=100))
    own.take(1)
    for number in range(6):
        (hammering,) = front_ends(HAMMERS, numbers=[1])
        assert hammering.hear() == "begun"
        time.sleep(number * 0.003)
        hammering.kill()
        own.take(1)
        shared.forget(1)
        assert own.in_flight == 2 + number
