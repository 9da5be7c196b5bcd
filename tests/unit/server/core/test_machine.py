"""What a machine has: CPUs and memory granted by control groups of both versions, and int8 kernels."""

import os

import pytest

from translane_server.core.machine import adds_int8_exactly, available_cpus, available_memory, int8_kernels


@pytest.fixture(autouse=True)
def _sixteen_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


def cpus(tmp_path, membership, **files):
    (tmp_path / "cgroup").write_text(membership)
    for name, content in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return available_cpus(tmp_path / "cgroup", tmp_path / "mount")


V1 = "4:memory:/a\n3:cpu,cpuacct:/a\n"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n"}, 16),
        ("0::/a/b\n", {"a/b/cpu.max": "200000 100000\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n"}, 1),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000\n"}, 1),
        # the tightest group of the lineage
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000", "cpu.max": "800000 100000"}, 3),
        ("0::/not/mounted/here\n", {"cpu.max": "400000 100000"}, 4),  # the path is the host's
        (V1, {"cpu/a/cpu.cfs_quota_us": "250000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 2),
        (V1, {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 2),
        (V1, {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 16),
        ("0::/../outside\n", {}, 16),
    ],
)
def test_the_lowest_limit_of_cpus_counts(tmp_path, membership, files, expected):
    assert cpus(tmp_path, membership, **files) == expected


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "2000000\n"}, 2_000_000),
        ("5:memory:/a\n", {"memory/a/memory.limit_in_bytes": "3000000"}, 3_000_000),
        ("0::/a\n", {}, 4096 * 1000),
    ],
)
def test_the_lowest_limit_of_memory_counts(tmp_path, monkeypatch, membership, files, expected):
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    cpus(tmp_path, membership, **files)
    assert available_memory(tmp_path / "cgroup", tmp_path / "mount") == expected


def test_affinity_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5})
    assert cpus(tmp_path, "0::/\n", **{"cpu.max": "max 100000"}) == 2
    assert available_cpus(tmp_path / "none", tmp_path / "none") == 2


@pytest.mark.parametrize(
    ("flags", "kernels", "exact"),
    [
        ("fpu avx2 avx512_vnni amx_int8", "AMX", True),
        ("fpu avx2 avx512_vnni", "AVX-512 VNNI", True),
        ("fpu avx2 avx_vnni", "AVX-VNNI", True),
        ("fpu avx2", "AVX2", False),
        ("fpu sse4_1", "SSE", False),
        (None, "", False),
    ],
)
def test_processors_with_vnni_add_int8_exactly(tmp_path, flags, kernels, exact):
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: {flags}\n")
    assert (int8_kernels(file), adds_int8_exactly(file)) == (kernels, exact)
