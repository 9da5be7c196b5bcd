"""The server's settings and what follows from them."""

import pytest

from fakes.serving import make_manifest, make_settings
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import load_settings
from translane_server.settings.server_settings import ENV_PREFIX, ServerSettings
from translane_server.translation.limits import limits_of


def load(*argv, **environ):
    return load_settings(ServerSettings, argv, environ, prog="translane serve", env_prefix=ENV_PREFIX)


def test_the_fixed_flags_and_ports():
    settings = load("bundle")
    assert (settings.port, settings.metrics_port, settings.device) == (50051, 9400, "auto")
    argv = "b --host ::1 --port 1 --metrics-port 2 --device cpu --threads 3 --max-batch-size 4 --replicas 2"
    settings = load(*argv.split())
    assert (settings.host, settings.port, settings.metrics_port) == ("::1", 1, 2)
    assert (settings.threads, settings.max_batch_size, settings.replicas) == (3, 4, 2)
    assert load("b", TRANSLANE_REPLICAS="3").replicas == 3


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ("--tls-cert=a", "--tls-cert needs --tls-key: TLS takes a certificate and its key"),
        ("--tls-key=a", "--tls-key needs --tls-cert: TLS takes a certificate and its key"),
        ("--tls-client-ca=a", "--tls-client-ca needs --tls-cert and --tls-key"),
        ("--metrics-tls", "--metrics-tls needs --tls-cert and --tls-key"),
        ("--port=1 --http-port=1", "--port and --http-port are both 1, and each needs a port of its own"),
        ("--port=9400", "--port and --metrics-port are both 9400, and each needs a port of its own"),
        ("--health-port=2 --admin-port=2", "--health-port and --admin-port are both 2, and each needs a port"),
        ("--max-queue-size=10", "--max-queue-size (10) must be at least --max-request-texts (256)"),
        ("--max-batch-size=8 --replicas=9", "--replicas (9) must be at most --max-batch-size (8)"),
        ("--max-batch-size=8 --max-beam-size=9", "--max-beam-size (9) must be at most --max-batch-size (8): a beam"),
        (
            "--max-batch-size=32 --replicas=4 --max-beam-size=9",
            "--max-beam-size (9) must be at most --max-batch-size (32) / --replicas (4)",
        ),
    ],
)
def test_settings_that_contradict_each_other(argv, problem):
    with pytest.raises(SettingsError) as caught:
        load("b", *argv.split())
    assert str(caught.value).startswith(problem)


def test_each_port_may_be_a_free_one():
    load("b", "--port=0", "--http-port=0", "--metrics-port=0", "--health-port=0", "--admin-port=0")


def test_an_origin_that_is_none_is_quoted_alone():
    with pytest.raises(SettingsError) as raised:
        load("b", "--http-origins=https://a.example,https://b.example/page")
    assert str(raised.value).endswith("without a path, not 'https://b.example/page'")
    assert load("b", "--http-origins=https://a.example,,*").http_origins == ("https://a.example", "*")


def test_token_limits():
    limits = limits_of(make_settings().of_model("m"), make_manifest()).tokens
    assert (limits.source, limits.target, limits.default_max_length) == (32, 24, 20)
    limits = limits_of(make_settings(max_source_tokens=8, max_target_tokens=9).of_model("m"), make_manifest()).tokens
    assert (limits.source, limits.target, limits.default_max_length) == (8, 9, 9)
    large = make_manifest(limits={"source_tokens": 5000, "target_tokens": 5000})
    assert limits_of(make_settings().of_model("m"), large).tokens.source == 256
    assert limits_of(make_settings(max_source_tokens=5000).of_model("m"), large).tokens.source == 5000


@pytest.mark.parametrize("name", ["max_source_tokens", "max_target_tokens"])
def test_limits_beyond_the_model_are_refused(name):
    flag = "--" + name.replace("_", "-")
    with pytest.raises(SettingsError, match=f"{flag} is 33, and the model takes .. at most"):
        limits_of(make_settings(**{name: 33}).of_model("m"), make_manifest())


@pytest.mark.parametrize(
    ("rows", "beams", "replicas", "limit"),
    [(64, None, None, 16), (8, None, None, 8), (64, 32, None, 32), (4, 4, 1, 4), (64, None, 8, 8), (64, None, 4, 16)],
)
def test_beams_have_rows(rows, beams, replicas, limit):
    assert make_settings(max_batch_size=rows, max_beam_size=beams, replicas=replicas).of_model("m").beam_limit == limit


@pytest.mark.parametrize(
    ("argv", "places"),
    [
        (["a"], [("", "a")]),
        (["zh-en=a", "b"], [("zh-en", "a"), ("", "b")]),
        (["x=a,y=b,c"], [("x", "a"), ("y", "b,c")]),
        (["/a,b"], [("", "/a,b")]),
        (["./x=a"], [("", "x=a")]),
        (["--models", "m", ""], []),
    ],
)
def test_the_places_of_models(argv, places):
    model = load(*argv).model
    assert model is not None
    assert [(place.name, str(place.folder)) for place in model] == places


def test_a_model_is_required():
    with pytest.raises(SettingsError, match=r"^MODEL is required \(or TRANSLANE_MODEL, .*--models"):
        load()
    assert load("--models", "m").model is None


def in_file(tmp_path, text):
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    return load("--config", str(tmp_path / "settings.toml"), "b", "--max-batch-size", "8")


def test_a_table_changes_settings_of_one_model(tmp_path):
    settings = in_file(
        tmp_path, 'max_queue_size = 500\n[model_settings."zh-en"]\nmax_batch_size = 4\nmax_beam_size = 3\n'
    )
    model = settings.of_model("zh-en")
    assert (model.max_batch_size, model.beam_limit, model.max_queue_size) == (4, 3, 500)
    assert settings.max_batch_size == 8
    assert settings.of_model("other").beam_limit == 8


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("thread = 4", r"^model_settings.m: unknown key thread; did you mean threads\?$"),
        ("port = 4", r"^model_settings.m: unknown key port$"),
        (
            "max_batch_size = 0",
            r"^model_settings.m: max_batch_size: input should be greater than or equal to 1, not 0$",
        ),
        ("max_beam_size = 9", r"^model_settings.m: --max-beam-size \(9\) must be at most --max-batch-size \(8\)"),
        ("max_queue_size = 9", r"^model_settings.m: --max-queue-size \(9\) must be at least"),
    ],
)
def test_a_wrong_table_is_a_sentence(tmp_path, table, sentence):
    with pytest.raises(SettingsError, match=sentence):
        in_file(tmp_path, f"[model_settings.m]\n{table}\n")


def test_tables_are_in_the_file_alone():
    with pytest.raises(SettingsError, match="unknown argument --model-settings"):
        load("b", "--model-settings", "{}")
    with pytest.raises(SettingsError, match="unknown environment variable TRANSLANE_MODEL_SETTINGS"):
        load("b", TRANSLANE_MODEL_SETTINGS="{}")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('model = {a = "https://user:hunter2@host/x"}', "input should be a valid tuple"),
        ('model = [["https://user:hunter2@host/x"]]', "input should be "),
        ('model = ["https://user:hunter2@host/x", 1]', "input should be "),
        ('models = "https://user:hunter2@host/x"', "a folder is needed, not a URL"),
        ('models = "a=https://user:hunter2@host/x"', "a folder is needed, not a URL"),
        ('models = ["https://user:hunter2@host/x"]', "input is not a valid path"),
    ],
)
def test_a_wrong_model_is_not_quoted(tmp_path, line, problem):
    file = tmp_path / "translane.toml"
    file.write_text(line)
    with pytest.raises(SettingsError, match=rf"^models? in {file}: {problem}") as caught:
        load("--config", str(file))
    assert "hunter2" not in str(caught.value)
