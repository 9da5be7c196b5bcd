"""What replicas tell each other about whether they are at work."""

import os

from translane_server.replica.activity import SharedActivity


def test_a_replica_is_alone_while_no_other_one_is_at_work():
    shared = SharedActivity()
    one, other = shared.of(0), shared.of(1023)
    assert one.is_alone()
    one.begin()
    assert one.is_alone()
    assert not other.is_alone()
    other.begin()
    assert not one.is_alone()
    one.end()
    assert other.is_alone()
    assert not one.is_alone()


def test_processes_that_are_forked_share_it():
    shared = SharedActivity()
    if not (child := os.fork()):
        shared.of(1).begin()
        os._exit(0)
    os.waitpid(child, 0)
    assert not shared.of(0).is_alone()
