"""The server's settings and what follows from them."""

import pytest

from fakes.serving import make_manifest, make_settings
from translane_server.errors import SettingsError
from translane_server.settings import ENV_PREFIX, ServerSettings, token_limits
from translane_server.settings_loader import load_settings


def load(*argv, **environ):
    return load_settings(ServerSettings, argv, environ, prog="translane-server", env_prefix=ENV_PREFIX)


def test_the_fixed_flags_and_ports():
    settings = load("--model", "bundle")
    assert (settings.port, settings.metrics_port, settings.device) == (50051, 9400, "auto")
    argv = [
        "--model",
        "b",
        "--host",
        "::1",
        "--port",
        "1",
        "--metrics-port",
        "2",
        "--device",
        "cpu",
        "--threads",
        "3",
        "--rows",
        "4",
        "--replicas",
        "2",
    ]
    settings = load(*argv)
    assert (settings.host, settings.port, settings.metrics_port) == ("::1", 1, 2)
    assert (settings.threads, settings.rows, settings.replicas) == (3, 4, 2)
    assert load("--model", "b", TRANSLANE_REPLICAS="3").replicas == 3


def test_a_full_request_must_be_able_to_wait():
    with pytest.raises(SettingsError, match=r"--sentences-waiting \(10\) must be at least --texts-per-request \(256\)"):
        load("--model", "b", "--sentences-waiting", "10")


def test_token_limits():
    limits = token_limits(make_settings(), make_manifest())
    assert (limits.source, limits.target, limits.default_max_length) == (32, 24, 20)
    limits = token_limits(make_settings(max_source_tokens=8, max_target_tokens=9), make_manifest())
    assert (limits.source, limits.target, limits.default_max_length) == (8, 9, 9)
    large = make_manifest(limits={"source_tokens": 5000, "target_tokens": 5000})
    assert token_limits(make_settings(), large).source == 256
    assert token_limits(make_settings(max_source_tokens=5000), large).source == 5000


@pytest.mark.parametrize("name", ["max_source_tokens", "max_target_tokens"])
def test_limits_beyond_the_model_are_refused(name):
    flag = "--" + name.replace("_", "-")
    with pytest.raises(SettingsError, match=f"{flag} is 33, and the model takes .. at most"):
        token_limits(make_settings(**{name: 33}), make_manifest())


@pytest.mark.parametrize(
    ("rows", "beams", "replicas", "limit"),
    [(64, None, None, 16), (8, None, None, 8), (64, 32, None, 32), (4, 4, 1, 4), (64, None, 8, 8), (64, None, 4, 16)],
)
def test_beams_have_rows(rows, beams, replicas, limit):
    assert make_settings(rows=rows, max_beam_size=beams, replicas=replicas).beam_limit == limit


def test_more_beams_than_rows_are_refused():
    with pytest.raises(SettingsError, match=r"--max-beam-size \(9\) must be at most --rows \(8\): a beam takes a row"):
        load("--model", "b", "--rows", "8", "--max-beam-size", "9")
    with pytest.raises(SettingsError, match=r"--max-beam-size \(9\) must be at most --rows \(32\) / --replicas \(4\)"):
        load("--model", "b", "--rows", "32", "--replicas", "4", "--max-beam-size", "9")


def test_a_replica_has_a_row():
    with pytest.raises(SettingsError, match=r"--replicas \(9\) must be at most --rows \(8\)"):
        load("--model", "b", "--rows", "8", "--replicas", "9")
