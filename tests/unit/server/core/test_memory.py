"""The memory of processes."""

import os

from translane_server.core.cpus import shared_memory


def process(folder, pid, parent, kilobytes):
    (folder / str(pid)).mkdir()
    (folder / str(pid) / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    (folder / str(pid) / "smaps_rollup").write_text(f"00-ff\nRss: 9 kB\nPss:   {kilobytes} kB\nPss_Dirty: 1 kB\n")


def test_processes_and_their_parents_count_once(tmp_path):
    process(tmp_path, 10, os.getpid(), 100)
    process(tmp_path, 11, 10, 7)
    process(tmp_path, 12, 10, 8)
    process(tmp_path, os.getpid(), 1, 5000)
    assert shared_memory([11, 12, -1, 99], tmp_path) == 115 * 1024
    assert shared_memory([], tmp_path) == 0


def test_this_system():
    assert shared_memory([os.getppid()]) > 0
