import re

import pytest

from translane_export.train.settings import ENV_PREFIX, TrainSettings
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import load_settings

NEEDED = ["--train=a.tsv", "--valid=b.tsv", "--output=run", "--source-language=zh-Hans", "--target-language=en"]


def _load(argv: list[str]) -> TrainSettings:
    return load_settings(TrainSettings, argv, {}, prog="translane train", env_prefix=ENV_PREFIX)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--train=a.tsv"], "--valid and --output must be given"),
        (NEEDED[:3], "--source-language: must be given as a BCP-47 tag"),
        (NEEDED[:4], "--target-language: must be given as a BCP-47 tag"),
        ([*NEEDED, "--target-language=e n"], "--target-language: must be given as a BCP-47 tag"),
        (["--evaluate=run/best"], "--test must be given"),
        ([*NEEDED, "--source-normalization=nfc"], "--source-normalization: 'nfc' is not one of nmt_nfkc, "),
        (
            [*NEEDED, "--vocabulary=word", "--sampling-alpha=0.1"],
            "--sampling-alpha: a word vocabulary knows one segmentation",
        ),
        ([*NEEDED, "--tie-embeddings=three-way"], "--tie-embeddings three-way: needs --joint-vocabulary"),
        ([*NEEDED, "--joint-vocabulary", "--source-normalization=nfkc"], "both sides need the same normalization"),
        ([*NEEDED, "--cooldown-steps=9", "--max-steps=8"], "--cooldown-steps: the cool-down must fit into --max-steps"),
        ([*NEEDED, "--heads=7"], "--d-model: 256 is not divisible by 7 heads; set --head-size"),
        ([*NEEDED, "--dropout=1"], "--dropout: input should be less than 1"),
        ([*NEEDED, "--unknown=1"], "--unknown"),
        ([*NEEDED, "--sampling-nbest=1"], "--sampling-nbest"),
        ([*NEEDED, f"--seed={2**32}"], "--seed: input should be less than 4294967296"),
        ([*NEEDED, "--threads=1025"], "--threads: input should be less than or equal to 1024"),
        ([*NEEDED, "--max-minutes=inf"], "--max-minutes: input should be a finite number, not 'inf'"),
        ([*NEEDED, "--max-positions=131072", "--d-model=2048"], "--max-positions: the tables of 131,072 sinusoidal"),
        ([*NEEDED, "--value-size=0"], "--value-size: input should be greater than or equal to 1, not 0"),
        (
            [*NEEDED, "--proximal-init", "--kv-heads=2"],
            "--proximal-init: keys cannot start as queries where --kv",
        ),
        ([*NEEDED, "--relative-window=1000", "--heads=256"], "--relative-window: 256 heads with 2,001 distances each"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)) as caught:
        _load(argv)
    assert "\n" not in str(caught.value)


def test_presets_are_overridden_by_single_sizes() -> None:
    config = _load([*NEEDED, "--preset=base", "--d-model=128"]).transformer_config(source_size=50, target_size=60)
    assert (config.d_model, config.encoder_layers, config.source_vocab_size) == (128, 6, 50)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--beam-size=4"], "--beam-size: needs --evaluate; validation in training is greedy"),
        (["--output-translations=a"], "--output-translations: needs --evaluate"),
        (["--evaluate=a", "--test=b", "--beam-size=17"], "--beam-size: input should be less than or equal to 16"),
        (["--evaluate=a", "--test=b", "--beam-size=0"], "--beam-size: input should be greater than or equal to 1"),
        (["--evaluate=a", "--test=b", "--length-penalty=2"], "--length-penalty: needs a --beam-size of at least 2"),
        (["--evaluate=a", "--test=b", "--beam-size=2", "--length-penalty=nan"], "--length-penalty: input should be"),
        (["--log-every=0"], "--log-every: input should be greater than or equal to 1"),
        (["--look-forward=2"], "--look-forward: has no effect without --window-size"),
        (["--exact-window", "--block-length=3"], "--exact-window: has no effect without --window-size"),
        (
            ["--rotary-interleaved", "--positions=alibi"],
            "--rotary-interleaved: has no effect without --positions rot",
        ),
        (["--max-minutes=-1"], "--max-minutes: input should be greater than or equal to 0"),
    ],
)
def test_settings_without_effect_or_bounds_are_refused(argv: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        _load([*NEEDED, *argv])


def test_a_switch_that_may_be_left_open_is_a_switch() -> None:
    choices = [_load([*NEEDED, *flags]) for flags in ([], ["--attention-biases"], ["--no-attention-biases"])]
    assert [settings.attention_biases for settings in choices] == [None, True, False]
