"""Connections by file descriptors."""

import asyncio
import logging
import os
import resource

import pytest

from translane_server.app import descriptors


@pytest.fixture
def limits(monkeypatch):
    """Stands for the process's limits: a list of the soft one and the hard one."""
    values = [1024, 1024]

    def change(_which, both):
        values[:] = both

    monkeypatch.setattr(resource, "getrlimit", lambda _which: tuple(values))
    monkeypatch.setattr(resource, "setrlimit", change)
    return values


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (256, 256, 256, 128),
        (64, 64, 64, 1),
        (1024, 1024, 1024, 768),
        (1024, 4096, 4096, 3072),
        (1024, resource.RLIM_INFINITY, 65536, 4096),
        (1024, 2**30, 65536, 4096),
        (100000, 2**30, 100000, 4096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY, 4096),
    ],
)
def test_connections_leave_descriptors_to_the_rest(limits, soft, hard, raised, connections):
    limits[:] = [soft, hard]
    assert descriptors.connection_limit(None) == connections
    assert limits == [raised, hard]


def test_fewer_connections_than_possible(limits):
    assert descriptors.connection_limit(10) == 10
    limits[1] = 20000
    assert descriptors.connection_limit(10000) == 10000


def test_more_connections_than_possible(limits, caplog):
    limits[:] = [1024, 1024]
    assert descriptors.connection_limit(1000) == 768
    assert "at most 768 connections" in caplog.text


def test_a_limit_that_cannot_be_raised(limits, monkeypatch):
    def refuse(_which, _both):
        raise ValueError

    limits[:] = [1024, 4096]
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert descriptors.connection_limit(None) == 768


def test_open_descriptors_are_counted():
    before = descriptors.count_open()
    assert before is not None
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    try:
        assert descriptors.count_open() == before + 5
    finally:
        for each in opened:
            os.close(each)


async def test_one_line_when_connections_run_out_and_one_when_they_are_free_again(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "translane_server")
    counts = iter([20, 109, 110, 120, None, 101, 99, 20, 110])
    done = asyncio.Event()

    def count():
        try:
            number = next(counts)
        except StopIteration:
            done.set()
            return 110
        if number is None:
            raise OSError
        return number

    async def no_pause(_seconds):
        pass

    monkeypatch.setattr(descriptors, "count_open", count)
    pause = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: pause(0))
    watch = asyncio.create_task(descriptors.watch_connections(100))
    await done.wait()
    watch.cancel()
    lines = [(record.levelname, record.message.split(";")[0]) for record in caplog.records]
    taken, free = ("WARNING", "nearly all connections are taken"), ("INFO", "connections are free again")
    assert lines == [taken, free, taken]


async def test_systems_that_do_not_tell_are_not_watched(monkeypatch):
    monkeypatch.setattr(descriptors, "_OPEN_DESCRIPTORS", ())
    await descriptors.watch_connections(100)  # it returns at once
    assert descriptors.count_open() is None
