"""Connections by file descriptors."""

import resource

import pytest

from translane_server.app.ports import connection_limit


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
    assert connection_limit(None) == connections
    assert limits == [raised, hard]


def test_fewer_connections_than_possible(limits):
    assert connection_limit(10) == 10
    limits[1] = 20000
    assert connection_limit(10000) == 10000


def test_more_connections_than_possible(limits, caplog):
    limits[:] = [1024, 1024]
    assert connection_limit(1000) == 768
    assert "at most 768 connections" in caplog.text


def test_a_limit_that_cannot_be_raised(limits, monkeypatch):
    def refuse(_which, _both):
        raise ValueError

    limits[:] = [1024, 4096]
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert connection_limit(None) == 768
