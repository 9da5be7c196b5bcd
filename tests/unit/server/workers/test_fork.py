"""What replicas fork from: it answers where it cannot fork, forks again, and goes where nobody is there.

Replicas that fork see which of them are at work. The first one has more threads while it is alone.
"""

import gc
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from unittest.mock import Mock

import psutil
import pytest

from fakes.backend import VOCABULARY, FakeBackend
from fakes.replicas import fake_setup
from helpers.demo import DEMO
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import BundleError, StartupError
from translane_server.workers import launch, processes
from translane_server.workers.__main__ import _all_threads
from translane_server.workers.messages import Frames, ModelSetup, Ready, WorkerSetup, of_object
from translane_server.workers.worker_process import Activity, ForkingProcess


@pytest.fixture
def control():
    """The server's and the process's ends of the socket for connections."""
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    with ours, theirs:
        yield ours, theirs


def send(ours, number):
    """Ask for a replica; return the server's end of its connection."""
    connection, theirs = socket.socketpair()
    connection.settimeout(10)
    connection.sendall(of_object(fake_setup(number)))
    with theirs:
        socket.send_fds(ours, [number.to_bytes(4, "little")], [theirs.fileno()])
    return connection


def ask_and_go(ours):
    """Ask for the replica 0 over a connection that is closed already."""
    connection, theirs = socket.socketpair()
    connection.close()
    with theirs:
        socket.send_fds(ours, [bytes(4)], [theirs.fileno()])


def never(*_arguments):
    raise AssertionError


def answer(connection):
    with connection:
        return pickle.loads(Frames().feed(connection.recv(1 << 16))[0])


def reports(ours):
    return ours.recv(1 << 16).decode().splitlines()


def test_a_model_that_does_not_load_is_told_to_all(control):
    load = Mock(side_effect=BundleError("model bundle x: it is not there"))
    ours, theirs = control
    connections = [send(ours, number) for number in range(2)]
    ours.shutdown(socket.SHUT_WR)
    assert ForkingProcess(theirs, load, never).run() == 0
    assert [str(answer(each)) for each in connections] == ["model bundle x: it is not there"] * 2
    assert reports(ours) == ["0 code 1", "1 code 1"]


def test_a_fork_that_fails_is_told(control, monkeypatch):
    monkeypatch.setattr(os, "fork", Mock(side_effect=BlockingIOError(11, "Resource temporarily unavailable")))
    ours, theirs = control
    connection = send(ours, 3)
    ours.shutdown(socket.SHUT_WR)
    assert ForkingProcess(theirs, lambda _setup: "model", never).run() == 0
    found = answer(connection)
    assert type(found) is StartupError
    assert str(found) == "replica 3 cannot be started: Resource temporarily unavailable"
    assert reports(ours) == ["3 code 1"]


def test_nothing_is_loaded_where_the_server_has_gone(control):
    ours, theirs = control
    ask_and_go(ours)
    ours.shutdown(socket.SHUT_WR)
    assert ForkingProcess(theirs, never, never).run() == 0
    assert reports(ours) == ["0 code 0"]


def test_it_has_one_thread_whatever_libraries_begin_with(control, monkeypatch):
    """Only such a process forks safely. OpenBLAS starts a thread for each CPU."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ours, theirs = control
    ours.settimeout(60)
    command = [sys.executable, "-P", "-m", "translane_server.workers", "fork", str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
        try:
            ask_and_go(ours)
            assert reports(ours) == ["0 code 0"]
            assert psutil.Process(process.pid).num_threads() == 1
        finally:
            ours.shutdown(socket.SHUT_WR)


def test_a_replica_whose_parent_has_ended_before_it_could_notice_ends(control, monkeypatch):
    monkeypatch.setattr(os, "getppid", lambda: 1)
    ours, theirs = control
    process = ForkingProcess(theirs, lambda _setup: "model", lambda *_setup: FakeBackend(rows=1))
    forking = threading.Thread(target=process.run)
    forking.start()
    try:
        with send(ours, 0):
            told = iter(ours.makefile())
            assert next(told).startswith("0 pid ")
            assert next(told) == "0 code 1\n"
    finally:
        ours.shutdown(socket.SHUT_WR)
        forking.join()


def test_a_replica_is_forked_again_and_its_end_is_told(control):
    loads = []

    def load(setup):
        loads.append(setup.number)
        return loads

    def open_backend(_setup, model, activity):
        assert not any(each is model for each in gc.get_objects()), "a collection would copy what is shared"
        assert activity.is_alone(), "the replica before has ended"
        activity.set(True)
        return FakeBackend(rows=1)

    ours, theirs = control
    told = iter(ours.makefile())

    def kill_and_go_on():
        try:
            for number in (0, 7):
                connection = send(ours, number)
                found, what, pid = next(told).split()
                assert (found, what) == (str(number), "pid")
                assert answer(connection.dup()) == Ready()
                os.kill(int(pid), signal.SIGKILL)
                assert next(told) == f"{number} code -9\n"
                connection.close()
        finally:
            ours.shutdown(socket.SHUT_WR)

    server = threading.Thread(target=kill_and_go_on)
    server.start()
    try:
        assert ForkingProcess(theirs, load, open_backend).run() == 0
    finally:
        server.join()
    assert loads == [0], "the model is loaded once"


@pytest.mark.parametrize("has_ended", [False, True])
def test_the_first_replica_takes_the_process_that_waits_unless_it_has_ended(has_ended):
    with launch.process_ahead():
        ((waiting, _),) = launch._waiting
        if has_ended:
            waiting.kill()
            waiting.wait()
        (host,) = processes.process_hosts(1, threads=1)
        ours, theirs = socket.socketpair()
        with theirs:
            host.launch(theirs)
    assert (host.pid == waiting.pid) is not has_ended
    ours.close()
    assert host.end(at_once=False) == "ended with exit code 0"


@pytest.mark.parametrize("megabytes", [40, 60, 80])
def test_a_process_that_waits_says_nothing_where_there_is_no_memory(megabytes):
    most = megabytes << 20
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ended = subprocess.run(
            ["prlimit", f"--as={most}", *launch.COMMAND, "wait", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_process_that_no_replica_takes_ends():
    with launch.process_ahead():
        ((waiting, _),) = launch._waiting
    assert waiting.returncode == -signal.SIGKILL


# In a process of its own: a fork of the one that runs the tests would go on with them if its end failed.
FORKS = """
import os
from translane_server.workers.worker_process import Activity

shared = Activity(0)
if child := os.fork():
    os.waitpid(child, 0)
    print(shared.of(0).is_alone(), shared.of(1).is_alone())
else:
    shared.of(1).set(True)
"""


def test_processes_that_are_forked_share_who_is_at_work():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False True\n"


@pytest.mark.parametrize("gone", ["", "decoder.onnx", "weights.bin"])
def test_the_first_replica_loads_the_graphs_for_all_threads_unless_the_folder_has_changed(tmp_path, gone, caplog):
    model = ModelSetup(load_bundle(shutil.copytree(DEMO, tmp_path / "bundle")), "cpu", 1, 32, 32)
    setup, activity = WorkerSetup(0, 4, VOCABULARY, model, lone_threads=2), Activity(0)
    if gone:
        (tmp_path / "bundle" / gone).unlink()
    found = _all_threads(setup, activity)
    assert (found is None) == bool(gone)
    if found:
        assert found.sessions.threads == 2
        assert found.are_free()
        activity.of(1).set(True)
        assert not found.are_free()
    else:
        assert "replica 0 runs on one thread, also while it is alone: model bundle" in caplog.text
    assert _all_threads(replace(setup, lone_threads=1), activity) is None
