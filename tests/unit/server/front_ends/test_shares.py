"""Front ends get everything that the server has, and none gets nothing."""

import pytest

from fakes.serving import make_settings
from translane_server.errors import SettingsError
from translane_server.front_ends.shares import shares_of
from translane_server.settings import ServerSettings


@pytest.mark.parametrize("number", [2, 3, 7])
def test_the_parts_are_the_whole(number):
    whole = {
        "replicas": 8,
        "max_batch_size": 100,
        "max_queue_size": 1000,
        "max_calls": 101,
        "max_connections": 50,
        "cache_bytes": 10_000_001,
        "max_bytes_in_flight": 64 << 20,
    }
    settings = make_settings(front_ends=number, **whole, max_source_tokens=100)
    shares = shares_of(settings, cpus=9)
    assert len(shares) == number
    for name, value in whole.items():
        parts = [getattr(share.settings, name) for share in shares]
        assert sum(parts) == value
        assert max(parts) - min(parts) <= 1
    assert sum(share.cpus for share in shares) == 9
    assert min(share.cpus for share in shares) >= 1
    assert {share.settings.max_source_tokens for share in shares} == {100}


def test_what_does_not_count_the_whole_server_stays():
    settings = make_settings(front_ends=2, threads=3, admin_port=1, health_port=2, grace_period=7)
    for share in shares_of(settings, cpus=2):
        ours = share.settings.model_dump()
        theirs = settings.model_dump() | {"front_ends": 1, "admin_port": None, "health_port": None}
        changed = {name for name, value in theirs.items() if ours[name] != value}
        assert changed == {"max_queue_size", "max_calls", "max_bytes_in_flight", "max_beam_size"}
        assert ours["max_beam_size"] == settings.beam_limit


def test_all_front_ends_take_the_same_beams():
    shares = shares_of(make_settings(front_ends=2, replicas=3, max_batch_size=21), cpus=3)
    assert [(share.settings.replicas, share.settings.max_batch_size) for share in shares] == [(2, 11), (1, 10)]
    assert [share.settings.beam_limit for share in shares] == [5, 5]


def test_the_table_of_a_model_is_divided_too():
    settings = make_settings(
        front_ends=2, model_settings={"small": {"max_batch_size": 9, "replicas": 2, "cache_bytes": 0, "threads": 1}}
    )
    tables = [share.settings.model_settings["small"] for share in shares_of(settings, cpus=2)]
    assert tables == [
        {"max_batch_size": 5, "replicas": 1, "cache_bytes": 0, "threads": 1, "max_beam_size": 4},
        {"max_batch_size": 4, "replicas": 1, "cache_bytes": 0, "threads": 1, "max_beam_size": 4},
    ]


def test_defaults_leave_room_for_the_largest_request():
    settings = ServerSettings.model_validate({"model": "unused", "front_ends": 64})
    for share in shares_of(settings, cpus=64):
        assert share.settings.max_queue_size == settings.max_request_texts
        assert share.settings.max_bytes_in_flight * settings.caller_share == settings.max_message_bytes
        assert share.settings.max_calls == settings.max_calls // 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "--front-ends (4) must be at most the CPUs granted (3)"),
        ({"front_ends": 3, "replicas": 2}, "--front-ends (3) must be at most --replicas (2), or one would get none"),
        (
            {"front_ends": 3, "max_batch_size": 2},
            "--front-ends (3) must be at most --max-batch-size (2), or one would get none",
        ),
        (
            {"front_ends": 3, "model_settings": {"m": {"replicas": 2}}},
            "--front-ends (3) must be at most model_settings.m.replicas (2), or one would get none",
        ),
        (
            {"front_ends": 2, "max_queue_size": 10},
            "--front-ends (2) leaves each front end too little: --max-queue-size (5) must be at least"
            " --max-request-texts (8), or a request of that many texts could never be accepted",
        ),
        (
            {"front_ends": 2, "max_batch_size": 16, "max_beam_size": 16},
            "--front-ends (2) leaves each front end too little: --max-beam-size (16) must be at most"
            " --max-batch-size (8): a beam takes a row",
        ),
        (
            {"front_ends": 2, "max_bytes_in_flight": 2 << 20},
            "--front-ends (2) leaves each front end too little: --max-bytes-in-flight (1048576) times --caller-share"
            " (0.5) must be at least --max-message-bytes (1048576), or a message of that size could never be accepted",
        ),
    ],
)
def test_too_little_is_one_sentence(changes, message):
    with pytest.raises(SettingsError) as refused:
        shares_of(make_settings(**{"front_ends": 4, **changes}), cpus=3)
    assert str(refused.value) == message
