"""The server's settings, how they are loaded, and where models come from."""

import re
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from fakes.serving import make_manifest, make_settings
from helpers.refusals import refusal
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import Flag, Settings, load_settings
from translane_server.settings.model_sources import ModelPlace, ModelUrl, RemotePlace
from translane_server.settings.server_settings import ENV_PREFIX, ServerSettings
from translane_server.translation.limits import limits_of


def load(*argv, **environ):
    return load_settings(ServerSettings, argv, environ, prog="translane serve", env_prefix=ENV_PREFIX)


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
    assert refusal(SettingsError, load, "b", *argv.split()).startswith(problem)


def test_an_origin_that_is_none_is_quoted_alone():
    message = refusal(SettingsError, load, "b", "--http-origins=https://a.example,https://b.example/page")
    assert message.endswith("without a path, not 'https://b.example/page'")
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
        ('model = "https://user:hunter2@host:port/a"', "the URL of a model has no host, or a wrong port"),
        ('model = ["x=y", "https://user:hunter2@host/a?sig=hunter2@sha256:1"]', "the digest of a model's URL"),
        (f'model = "{"n" * 101}=https://user:hunter2@host/a"', "a model's name has at most 100 characters"),
        ('models = "https://user:hunter2@host/x"', "a folder is needed, not a URL"),
        ('models = "a=https://user:hunter2@host/x"', "a folder is needed, not a URL"),
        ('models = ["https://user:hunter2@host/x"]', "input is not a valid path"),
    ],
)
def test_a_wrong_model_is_not_quoted(tmp_path, line, problem):
    file = tmp_path / "translane.toml"
    file.write_text(line)
    message = refusal(SettingsError, load, "--config", str(file))
    assert re.match(rf"models? in {file}: {problem}", message)
    assert "hunter2" not in message


# Flag > environment > file > default, and one sentence for whatever is wrong.


class Example(Settings):
    """An example of a command."""

    source: Annotated[Path, Flag(positional=True)] = Field(description="What to read.")
    output: Annotated[Path, Flag("FOLDER", short="-o")] = Field(default=Path("out"), description="What to write.")
    group_size: Annotated[int, Flag(heading="speed")] = Field(default=8, ge=1, description="How many at once.")
    languages: tuple[str, ...] = Field(default=(), description="Which ones.")
    fast: bool = Field(default=False, description="Hurry.")


def load_any(*argv, prefix="TRANSLANE_", **environ):
    return load_settings(Example, argv, environ, prog="example", env_prefix=prefix)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('source = "file"\ngroup_size = 2\nlanguages = ["de", "fr"]\n', encoding="utf-8")
    return str(path)


def test_precedence(config):
    assert load_any("--config", config).group_size == 2
    assert load_any(TRANSLANE_CONFIG=config).group_size == 2
    assert load_any("--config", config, TRANSLANE_GROUP_SIZE="3").group_size == 3
    assert load_any("--config", config, "--group-size", "4", TRANSLANE_GROUP_SIZE="3").group_size == 4
    assert load_any("--config", config, "flag", TRANSLANE_SOURCE="variable").source == Path("flag")
    assert load_any("--config", config, TRANSLANE_SOURCE="variable").source == Path("variable")
    assert load_any("--config", config, TRANSLANE_CONFIG="/not/read").source == Path("file")


def test_spellings(config):
    assert load_any("x", "-o", "there").output == Path("there")
    assert load_any("x", "--fast").fast is True
    assert load_any("x", "--no-fast", TRANSLANE_FAST="1").fast is False
    assert load_any("x", TRANSLANE_FAST="true").fast is True
    assert load_any("x", "--languages", "de", "--languages", "fr").languages == ("de", "fr")
    assert load_any("x", "--languages", "de,fr").languages == ("de", "fr")
    assert load_any("x", TRANSLANE_LANGUAGES="de,fr").languages == ("de", "fr")
    assert load_any("--config", config).languages == ("de", "fr")
    assert load_any("--config", config, TRANSLANE_LANGUAGES="", TRANSLANE_GROUP_SIZE="").languages == ("de", "fr")


@pytest.mark.parametrize(
    ("argv", "environ", "sentence"),
    [
        ((), {}, "SOURCE is required (or TRANSLANE_SOURCE, or source in the settings file)"),
        (("x", "y"), {}, "unknown argument y; --help-all lists the known ones"),
        (("x", "--group-size"), {}, "--group-size: expected one argument"),
        (("x", "--group-size", "0"), {}, "--group-size: input should be greater than or equal to 1, not '0'"),
        (
            ("x",),
            {"TRANSLANE_GROUP_SIZE": "many"},
            "TRANSLANE_GROUP_SIZE: input should be a valid integer, unable to parse string as an integer, not 'many'",
        ),
        (
            ("x",),
            {"TRANSLANE_GROUP_SISE": "1"},
            "unknown environment variable TRANSLANE_GROUP_SISE; did you mean TRANSLANE_GROUP_SIZE?",
        ),
        (("x",), {"TRANSLANE_ZZZZ": "1"}, "unknown environment variable TRANSLANE_ZZZZ"),
        (
            ("--config", "/nowhere.toml"),
            {},
            "settings file /nowhere.toml: it cannot be read: No such file or directory",
        ),
    ],
)
def test_refusals(argv, environ, sentence):
    assert refusal(SettingsError, load_any, *argv, **environ) == sentence


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("group-size = 3", "unknown key group-size; did you mean group_size?"),
        ("group_size = 0", "greater than or equal to 1, not 0"),
        ("group_size = ", "it is not TOML"),
        ("[server]\ngroup_size = 3", "unknown key server"),
        ('config = "other.toml"', "unknown key config"),
    ],
)
def test_refused_files(tmp_path, content, part):
    path = tmp_path / "bad.toml"
    path.write_text(content, encoding="utf-8")
    sentence = refusal(SettingsError, load_any, "x", "--config", str(path))
    assert str(path) in sentence
    assert part in sentence


def test_a_command_ignores_the_variables_of_others():
    others = {"TRANSLANE_TRAIN_STEPS": "1", "TRANSLANE_EXPORT_FORMAT": "x", "TRANSLANE_CLIENT_SERVER": "y"}
    assert load_any("x", **others).group_size == 8
    settings = load_any("x", prefix="TRANSLANE_TRAIN_", TRANSLANE_PORT="1", TRANSLANE_TRAIN_GROUP_SIZE="5")
    assert settings.group_size == 5
    with pytest.raises(SettingsError, match="TRANSLANE_TRAIN_PORT"):
        load_any("x", prefix="TRANSLANE_TRAIN_", TRANSLANE_TRAIN_PORT="1")


# Which URLs lead to models, and that nobody sees the secrets in them.


DIGEST = "0123456789abcdef" * 4
SECRET = "hunter2"


def test_http_takes_a_digest_unless_it_stays_on_the_machine():
    assert ModelUrl.parse(f"http://host/a@sha256:{DIGEST}").digest == DIGEST
    with pytest.raises(ValueError, match="http:// needs a digest"):
        ModelUrl.parse("http://host/a")
    with pytest.raises(ValueError, match="a password in the URL of a model needs https://"):
        ModelUrl.parse(f"http://user:{SECRET}@host/a@sha256:{DIGEST}")
    for text in ("http://[::1]:5/a", "http://127.0.0.1/a", "http://localhost/a", f"http://user:{SECRET}@localhost/a"):
        assert ModelUrl.parse(text).scheme == "http"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ftp://host/a", "begins with https://, http://, s3:// or hf://"),
        ("file:///etc/passwd", "begins with https://, http://, s3:// or hf://"),
        ("https:///a", "has no host"),
        ("https://host:port/a", "has no host, or a wrong port"),
        ("https://[::1/a", "has no host, or a wrong port"),
        ("https://host/a#b", "has no part after #"),
        ("https://host/a b", "all of them visible ASCII"),
        ("https://host/\n", "all of them visible ASCII"),
        ("https://host/" + "a" * 4000, "at most 4,000 characters"),
        ("https://host/a@sha256:0123", "64 hexadecimal digits"),
        ("https://host/a@sha256:" + "g" * 64, "64 hexadecimal digits"),
        ("s3://bucket/a?x=y", "s3://BUCKET/FOLDER"),
        ("s3://key:word@bucket/a", "s3://BUCKET/FOLDER"),
        ("s3://Bucket_/a", "s3://BUCKET/FOLDER"),
        ("hf://owner", "hf://OWNER/NAME"),
        ("hf://owner/name@/a", "hf://OWNER/NAME"),
        ("hf://token@owner/name", "hf://OWNER/NAME"),
        ("hf://owner/name?revision=x", "hf://OWNER/NAME"),
    ],
)
def test_what_is_no_url_of_a_model(text, problem):
    with pytest.raises(ValueError, match=problem):
        ModelUrl.parse(text)


def test_secrets_are_not_shown():
    url = ModelUrl.parse(f"https://user:{SECRET}@host/a?sig={SECRET}@sha256:{DIGEST}")
    assert str(url) == f"https://host/a?…@sha256:{DIGEST}"
    assert SECRET not in repr(url) + repr(RemotePlace(url))


def test_places_are_folders_or_urls():
    settings = load("a", f"b=https://host/x@sha256:{DIGEST}", "https://host/y?a=b")
    first, second, third = settings.model
    assert (type(first), second.name, third.name) == (ModelPlace, "b", "")
    assert [str(place.url) for place in (second, third)] == [f"https://host/x@sha256:{DIGEST}", "https://host/y?…"]
    listed = load(TRANSLANE_MODEL=f"a=https://host/x?p=1,2@sha256:{DIGEST},b=s3://bucket/y").model
    assert [(place.name, place.url.scheme) for place in listed] == [("a", "https"), ("b", "s3")]
    assert [type(place) for place in load("a/b", "C:/a", "./http://a").model] == [ModelPlace] * 3
    assert load("HTTPS://host/a").model[0].url.scheme == "https"


def test_the_key_of_a_url_tells_urls_apart():
    texts = ("https://host/a", "https://host/b", "https://host/a?v=1", "https://other/a", "s3://host/a")
    assert len({ModelUrl.parse(text).key for text in texts}) == len(texts)
    same = ("https://host/a", "https://host/a/", "https://user:x@host/a", f"https://host/a@sha256:{DIGEST}")
    assert len({ModelUrl.parse(text).key for text in same}) == 1
