"""The settings of `translane batch`, and which of them decide the outputs."""

from pathlib import Path

import pytest

from helpers.refusals import refusal
from translane_batch.settings import ENV_PREFIX, BatchSettings
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import load_settings
from translane_server.settings.server_settings import ServerSettings

NEEDED = ["corpus", "--output=out", "--model=models/zh-en"]


def load(argv: list[str], environ: dict[str, str] | None = None) -> BatchSettings:
    return load_settings(BatchSettings, argv, environ or {}, prog="translane batch", env_prefix=ENV_PREFIX)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (NEEDED[1:], "CORPUS is required"),
        (["corpus", "--model=m"], "--output is required"),
        (NEEDED[:2], "--model is required (or TRANSLANE_BATCH_MODEL"),
        ([*NEEDED, "--kind=csv"], "--kind: input should be 'auto', 'text', 'tsv', 'jsonl' or 'parquet'"),
        ([*NEEDED, "--column=0"], "--column"),
        ([*NEEDED, "--task-size=0"], "--task-size"),
        ([*NEEDED, "--task-size=2000000"], "--task-size"),
        ([*NEEDED, "--requests=257"], "--requests"),
        ([*NEEDED, "--min-quality=1.5"], "--min-quality"),
        ([*NEEDED, "--max-ratio=inf"], "--max-ratio: input should be a finite number"),
        ([*NEEDED, "--leave-out=copies"], "--leave-out"),
        ([*NEEDED, "--field="], "--field"),
        ([*NEEDED, "--beam-size=nine"], "--beam-size"),
        ([*NEEDED, "--server=a:1", "--ray=auto"], "--server and --ray exclude each other"),
        ([*NEEDED, "--token-file=key"], "--token-file needs --server"),
        ([*NEEDED, "--server=a:1", "--device=cpu"], "--device and --server exclude each other: servers have their own"),
        ([*NEEDED, "--server=a:1", "--model-cache=folder"], "--model-cache and --server exclude each other"),
        ([*NEEDED, "--server=a:1", "--max-batch-size=64"], "--max-batch-size and --server exclude each other"),
        ([*NEEDED, "--workers=2"], "--workers needs --ray"),
        ([*NEEDED, "--cpus-per-worker=2"], "--cpus-per-worker needs --ray"),
        ([*NEEDED, "--model=ftp://a/b"], "--model: the URL of a model begins with https://, http://, s3:// or hf://"),
        ([*NEEDED, "--model=https://a/b@sha256:1"], "--model: the digest of a model's URL is @sha256: and 64"),
        ([*NEEDED, "--resume"], "unknown argument --resume"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(argv, sentence):
    assert sentence in refusal(SettingsError, load, argv)


def test_all_that_decides_the_outputs_is_compared():
    """A new setting is either in the identity of a run, or it changes no output, and is named here."""
    elsewhere = {"corpus", "model"}  # by their contents
    of_no_effect = {
        "bundled_model", "model_cache", "model_cache_bytes", "work", "summary", "device", "replicas", "threads",
        "max_batch_size", "requests", "task_size", "server", "ca", "token_file", "ray", "workers", "cpus_per_worker",
    }  # fmt: skip
    assert set(load(NEEDED).what_decides) == set(BatchSettings.model_fields) - elsewhere - of_no_effect


def test_a_wrong_url_is_refused_without_its_secrets():
    argv = ["corpus", "--output=out", "--model=http://me:secret@far.example/zh-en?sig=secret"]
    message = refusal(SettingsError, load, argv)
    assert message.startswith("--model: a password in the URL of a model needs https://")
    assert "secret" not in message


def test_a_model_of_servers_is_a_name():
    assert load(["corpus", "--output=out", "--server=a:1", "--model=ftp://a"]).model == "ftp://a"


def test_the_environment_has_every_setting_and_is_nobody_elses():
    environ = {"TRANSLANE_BATCH_CORPUS": "a", "TRANSLANE_BATCH_OUTPUT": "b", "TRANSLANE_BATCH_MODEL": "c"}
    assert load([], environ).corpus == Path("a")
    load_settings(ServerSettings, ["m"], environ, prog="translane serve", env_prefix="TRANSLANE_")
    with pytest.raises(SettingsError, match="TRANSLANE_BATCH_BEAMS"):
        load(NEEDED, {"TRANSLANE_BATCH_BEAMS": "1"})
