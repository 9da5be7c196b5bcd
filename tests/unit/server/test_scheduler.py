from translane_server.job import PendingRequest
from translane_server.options import DecodingOptions
from translane_server.request import Request, Sentence
from translane_server.scheduler import Scheduler


def jobs(*lengths, priority=0, **options):
    sentences = [Sentence([7] * n, DecodingOptions(9, **options)) for n in lengths]
    request = Request(sentences, on_done=lambda result: None, priority=priority)
    return PendingRequest(request, 0.0).jobs()


def lengths(admitted):
    return [job.source_length for job in admitted]


def test_first_come_first_served():
    scheduler = Scheduler(encode_tokens=100)
    scheduler.add(jobs(3, 1))
    scheduler.add(jobs(2))
    assert lengths(scheduler.schedule(10)) == [3, 1, 2]
    assert len(scheduler) == 0


def test_higher_priority_first_and_equal_in_order_of_arrival():
    scheduler = Scheduler(encode_tokens=100)
    scheduler.add(jobs(1, 2))
    scheduler.add(jobs(3, 4, priority=5))
    scheduler.add(jobs(5, priority=-1))
    assert lengths(scheduler.schedule(10)) == [3, 4, 1, 2, 5]


def test_no_more_than_the_free_rows():
    scheduler = Scheduler(encode_tokens=100)
    scheduler.add(jobs(1, 2, 3))
    assert lengths(scheduler.schedule(0)) == []
    assert lengths(scheduler.schedule(2)) == [1, 2]
    assert lengths(scheduler.schedule(2)) == [3]


def test_padded_size_is_bounded():
    scheduler = Scheduler(encode_tokens=10)
    scheduler.add(jobs(2, 3, 3, 4))
    assert lengths(scheduler.schedule(10)) == [2, 3, 3]  # a fourth of length 4 would make it 16
    assert lengths(scheduler.schedule(10)) == [4]


def test_a_sentence_longer_than_the_bound_enters_alone():
    scheduler = Scheduler(encode_tokens=10)
    scheduler.add(jobs(1, 25, 1))
    assert [lengths(scheduler.schedule(10)) for _ in range(3)] == [[1], [25], [1]]


def test_removed_jobs_never_enter():
    scheduler = Scheduler(encode_tokens=100)
    first, second = jobs(1, 2), jobs(3)
    scheduler.add(first)
    scheduler.add(second)
    assert scheduler.remove(lambda job: job.pending is first[0].pending) == 2
    assert len(scheduler) == 1
    assert lengths(scheduler.schedule(10)) == [3]
    assert scheduler.remove(lambda job: True) == 0
