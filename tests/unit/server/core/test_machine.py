"""CPUs granted by control groups of both versions."""

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


@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000", 16), ("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1)]
)
def test_version_2(tmp_path, quota, expected):
    assert cpus(tmp_path, "0::/a/b\n", **{"a/b/cpu.max": quota + "\n"}) == expected


def test_the_tightest_group_of_the_lineage_counts(tmp_path):
    files = {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000", "cpu.max": "800000 100000"}
    assert cpus(tmp_path, "0::/a/b\n", **files) == 3


def test_the_mounts_root_counts_where_the_path_is_the_hosts(tmp_path):
    assert cpus(tmp_path, "0::/not/mounted/here\n", **{"cpu.max": "400000 100000"}) == 4


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


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_version_1(tmp_path, folder):
    files = {f"{folder}/a/cpu.cfs_quota_us": "250000\n", f"{folder}/a/cpu.cfs_period_us": "100000\n"}
    assert cpus(tmp_path, "4:memory:/a\n3:cpu,cpuacct:/a\n", **files) == 2
    files[f"{folder}/a/cpu.cfs_quota_us"] = "-1"
    assert cpus(tmp_path, "3:cpu,cpuacct:/a\n", **files) == 16


def test_no_control_groups(tmp_path):
    assert available_cpus(tmp_path / "none", tmp_path / "none") == 16
    assert cpus(tmp_path, "0::/../outside\n") == 16


def test_affinity_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5})
    assert cpus(tmp_path, "0::/\n", **{"cpu.max": "max 100000"}) == 2


@pytest.mark.parametrize(
    ("flags", "exact"), [("fpu avx2", False), ("fpu avx2 avx512_vnni", True), ("fpu avx_vnni", True), (None, False)]
)
def test_processors_with_vnni_add_int8_exactly(tmp_path, flags, exact):
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: {flags}\n")
    assert adds_int8_exactly(file) == exact


@pytest.mark.parametrize(
    ("flags", "kernels"),
    [
        ("fpu avx2 avx512_vnni amx_int8", "AMX"),
        ("fpu avx2 avx512_vnni", "AVX-512 VNNI"),
        ("fpu avx2 avx_vnni", "AVX-VNNI"),
        ("fpu avx2", "AVX2"),
        ("fpu sse4_1", "SSE"),
        (None, ""),
    ],
)
def test_the_kernels_of_int8_have_names(tmp_path, flags, kernels):
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    assert int8_kernels(file) == kernels
