"""How a server's CPUs and rows are divided."""

import pytest

from fakes.serving import make_settings
from translane_server.core.errors import SettingsError
from translane_server.workers.placement import Placement, divide_cpus, place_replicas

SMALL, LARGE = 7_000_000, 80_000_000


def plan(parameters=SMALL, device="cpu", cpus=2, all_cpus=0, **settings):
    given = make_settings(**settings).of_model("m")
    return place_replicas(
        parameters,
        device,
        cpus,
        all_cpus,
        rows_of=given.rows_of,
        beam_limit=given.beam_limit,
        rows=given.max_batch_size,
        replicas=given.replicas,
        threads=given.threads,
    )


def test_a_small_model_has_a_replica_on_each_cpu():
    assert plan() == Placement(rows=(32, 32), threads=1)
    assert plan(cpus=1) == Placement(rows=(64,), threads=1)
    assert plan(cpus=99) == Placement(rows=(32,) * 16, threads=1)


def test_a_larger_model_has_one_on_each_cpu_too_and_all_threads_for_a_lone_one():
    assert plan(LARGE, cpus=16) == Placement(rows=(16,) * 16, threads=1, lone_threads=16)
    assert plan(LARGE, cpus=16).lone_rows == 8
    assert plan(LARGE, cpus=3) == Placement(rows=(22, 21, 21), threads=1, lone_threads=3)
    assert [plan(LARGE).lone_threads_of(number) for number in range(2)] == [2, 1]
    assert plan(LARGE, cpus=1) == Placement(rows=(64,), threads=1)


def test_a_model_has_one_where_its_size_the_rows_or_the_cpus_do_not_suit_many():
    assert plan(200_000_000) == Placement(rows=(64,), threads=2)
    assert plan(LARGE, max_batch_size=31) == Placement(rows=(31,), threads=2)
    assert plan(LARGE, cpus=65) == Placement(rows=(64,), threads=65)
    assert plan(LARGE, max_beam_size=64) == Placement(rows=(64,), threads=2)


@pytest.mark.parametrize(
    ("parameters", "settings", "spare"),
    [
        (SMALL, {}, (32,) * 7),
        (LARGE, {}, (16,) * 7),
        (SMALL, {"max_batch_size": 64}, (16,) * 3),
        (SMALL, {"max_batch_size": 8, "max_beam_size": 8}, ()),
        (200_000_000, {}, ()),
        (SMALL, {"replicas": 1}, ()),
        (SMALL, {"threads": 1}, ()),
    ],
)
def test_a_model_beside_others_has_spare_replicas_for_their_cpus(parameters, settings, spare):
    planned = plan(parameters, cpus=1, all_cpus=8, **settings)
    assert planned.spare_rows == spare
    assert planned.rows == plan(parameters, cpus=1, **settings).rows


def test_replicas_and_threads_can_be_set():
    assert plan(LARGE, replicas=2) == Placement(rows=(32, 32), threads=1)
    assert plan(LARGE, replicas=2, cpus=8).threads == 4
    assert plan(replicas=3, threads=2, max_batch_size=20) == Placement(rows=(7, 7, 6), threads=2)
    assert plan(replicas=4, cpus=2).threads == 1
    assert plan(threads=1) == Placement(rows=(64,), threads=1)


@pytest.mark.parametrize(
    ("rows", "max_beam_size", "replicas"),
    [(64, None, 4), (64, 32, 2), (64, 2, 16), (8, None, 1), (None, 32, 16), (None, 64, 1)],
)
def test_the_largest_beam_fits_into_each_replica(rows, max_beam_size, replicas):
    planned = plan(cpus=16, max_batch_size=rows, max_beam_size=max_beam_size)
    assert len(planned.rows) == replicas
    assert sum(planned.rows) == (rows or max(64, 32 * replicas))
    assert planned.threads == (1 if replicas > 1 else 16)
    assert min(planned.rows) >= make_settings(max_batch_size=rows, max_beam_size=max_beam_size).of_model("m").beam_limit


def test_cuda_has_one():
    assert plan(device="cuda") == Placement(rows=(64,), threads=2)
    with pytest.raises(SettingsError, match="--replicas is 2, and on cuda there is one"):
        plan(device="cuda", replicas=2)


@pytest.mark.parametrize(("cpus", "expected"), [(2, [1, 1, 1]), (4, [2, 1, 1]), (8, [3, 3, 2])])
def test_models_share_the_cpus(cpus, expected):
    assert list(divide_cpus(["a", "b", "c"], cpus).values()) == expected
