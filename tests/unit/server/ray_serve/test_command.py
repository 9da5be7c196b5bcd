"""The configuration that translane ray writes, and that deploy/ray shows."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import ray
from translane_server.core.errors import SettingsError
from translane_server.settings.model_sources import ModelPlace, ModelUrl, RemotePlace

yaml = pytest.importorskip("yaml", reason="the extra ray is not installed")

from translane_server.ray_serve.command import config_of  # noqa: E402
from translane_server.ray_serve.settings import EngineSettings  # noqa: E402

DIGEST = "@sha256:" + "5f" * 32
ROOT = Path(__file__).parents[4]
BUNDLE, EXAMPLE = ROOT / "models" / "zh-en", ROOT / "deploy" / "ray" / "serve.yaml"


def only_application(*argv, **environ):
    (application,) = config_of(argv, environ)["applications"]
    return application


def test_a_model_and_nothing_else():
    """All else is in the example of `deploy/ray`."""
    (deployment,) = only_application("/models/zh-en")["deployments"]
    assert (deployment["num_replicas"], deployment["ray_actor_options"]) == (1, {"num_cpus": 1})
    assert "autoscaling_config" not in deployment
    (deployment,) = only_application("/m", "--max-serve-replicas", "8", "--target-load", "0.5")["deployments"]
    assert deployment["autoscaling_config"]["target_ongoing_requests"] == 0.5


def test_settings_of_the_server_reach_the_engine_through_yaml():
    argv = ["a=some/models/a", "--max-batch-size=8", "--idle-timeout=1.5", "--port=7", "--keys-file=keys", "--no-pivot"]
    values = only_application(*argv, TRANSLANE_RAY_LOG_LEVEL="debug")["args"]["groups"]["translane"]
    folder, keys = Path("some/models/a").absolute(), Path("keys").absolute()
    set_ones: dict[str, Any] = {"max_batch_size": 8, "idle_timeout": 1.5, "log_level": "debug", "pivot": False}
    assert values == {"model": [f"a={folder}"], "keys_file": str(keys), **set_ones}
    given = EngineSettings(model=(ModelPlace(folder, "a"),), keys_file=keys, **set_ones)
    assert EngineSettings.model_validate(yaml.safe_load(yaml.safe_dump(values))) == given


def test_models_at_urls_are_written_as_they_were_given():
    urls = [f"s3://models/zh-en/8{DIGEST}", f"ja-en=https://models.example:8443/ja%2Cen{DIGEST}", "de=https://a/de"]
    values = only_application(*urls, "--model-cache", "~/cache", "--model-cache-bytes", "5000")["args"]["groups"]
    assert values == {"translane": {"model": urls, "model_cache": "~/cache", "model_cache_bytes": 5000}}
    settings = EngineSettings.model_validate(yaml.safe_load(yaml.safe_dump(values["translane"])))
    assert settings.model == (
        RemotePlace(ModelUrl.parse(urls[0])),
        RemotePlace(ModelUrl.parse(urls[1].removeprefix("ja-en=")), "ja-en"),
        RemotePlace(ModelUrl.parse("https://a/de"), "de"),
    )
    assert settings.model_cache == Path("~/cache")


@pytest.mark.parametrize("url", ["https://me:secret@models.example/zh-en", "https://models.example/zh-en?sig=secret"])
def test_a_url_with_a_secret_is_refused_and_not_shown(url, capsys):
    assert ray([f"zh-en={url}{DIGEST}"], {}) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "Ray Serve shows its configuration, so a URL may have no password and no query" in captured.err
    assert "secret" not in captured.err


@pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree")
def test_separate_models_have_a_deployment_each_and_the_settings_of_their_names(tmp_path):
    (tmp_path / "settings.toml").write_text("[model_settings.de]\nmax_batch_size = 8\n", encoding="utf-8")
    argv = ["--config", str(tmp_path / "settings.toml"), str(BUNDLE), f"de=https://a/de{DIGEST}", f"a={BUNDLE}"]
    application = only_application(*argv, "--separate-models", "--model-cache", "/cache", "--serve-gpus", "0.5")
    assert application["args"]["groups"] == {
        "de": {
            "model": [f"de=https://a/de{DIGEST}"],
            "model_cache": "/cache",
            "model_settings": {"de": {"max_batch_size": 8}},
        },
        "zh-en": {"model": [f"zh-en={BUNDLE}"], "model_cache": "/cache"},
        "a": {"model": [f"a={BUNDLE}"], "model_cache": "/cache"},
    }
    assert {each["name"] for each in application["deployments"]} == {"a", "de", "zh-en"}
    assert application["deployments"][0]["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 0.5}


def test_names_of_models_stay_names_which_each_engine_finds():
    given = ["owner/de-en@main", "en=owner/en-de", "zh-en"]
    assert only_application(*given)["args"]["groups"]["translane"]["model"] == given
    groups = only_application("a=owner/de-en", "b=zh-en", "--separate-models")["args"]["groups"]
    assert [each["model"] for each in groups.values()] == [["a=owner/de-en"], ["b=zh-en"]]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ("--separate-models https://a/b", "MODEL https://a/b: --separate-models takes the name of a model, too: NAME="),
        ("--separate-models a=https://b a=https://c", "two models have the name a: a=https://b and a=https://c$"),
        ("--separate-models a=https://b a=/models/a", "two models have the name a: a=https://b and a=/models/a$"),
        ("/m --tls-cert c --tls-key k", "--tls-cert has no meaning under Ray Serve: Serve's gRPC proxy has no"),
        ("/m --http-port 8080", "--http-port has no meaning under Ray Serve"),
        ("/m --check", "--check has no meaning under Ray Serve: translane serve has it"),
        ("/m --max-serve-replicas 1 --serve-replicas 2", r"--max-serve-replicas \(1\) must be at least"),
        ("/m --max-batch-size 0", "--max-batch-size: input should be greater than or equal to 1, not '0'"),
        ("/m --serve-cpus 0", "--serve-cpus: input should be greater than or equal to 1, not '0'"),
    ],
)
def test_what_is_refused(argv, problem):
    with pytest.raises(SettingsError, match=f"^{problem}"):
        config_of(argv.split(), {})


@pytest.mark.parametrize(("path", "code", "sentence"), [("/dev/full", 1, "No space left on device"), ("", 0, "")])
def test_an_output_that_takes_nothing_is_no_traceback(path, code, sentence):
    """Without a path, nobody reads."""
    if path and not Path(path).exists():
        pytest.skip(f"there is no {path}")
    reading, writing = (0, os.open(path, os.O_WRONLY)) if path else os.pipe()
    if reading:
        os.close(reading)
    command = [sys.executable, "-m", "translane", "ray", "/m"]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    told = f"translane ray: standard output cannot be written: {sentence}\n" if sentence else ""
    assert (done.returncode, done.stderr) == (code, told)


def test_the_example_is_what_the_command_in_it_writes():
    text = EXAMPLE.read_text(encoding="utf-8")
    (command,) = re.findall(r"^# +translane ray (.*)$", text, re.MULTILINE)
    assert yaml.safe_load(text) == config_of(command.split(), {})
