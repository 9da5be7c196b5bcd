"""--decoding-defaults, from text to the defaults of a bundle."""

import pytest

from translane_export.settings import ENV_PREFIX, ExportSettings, read_defaults
from translane_server.bundle.manifest import SearchDefaults
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import load_settings


@pytest.mark.parametrize(
    ("text", "defaults"),
    [
        ("beam_size=4", {"beam_size": 4}),
        (" beam_size = 4 , length_penalty=-0.5", {"beam_size": 4, "length_penalty": -0.5}),
        (
            "early_stopping=true,repetition_penalty=1.1,no_repeat_ngram_size=3,min_length=1",
            {"early_stopping": True, "repetition_penalty": 1.1, "no_repeat_ngram_size": 3, "min_length": 1},
        ),
        ("none", {}),
        ("", {}),
    ],
)
def test_text(text, defaults):
    found = read_defaults(text)
    assert found == SearchDefaults(**defaults)
    assert read_defaults(str(found)) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("beam_size", "'beam_size' has no value: write NAME=VALUE, such as beam_size=4"),
        ("beams=4", "'beams' is none of beam_size, length_penalty, early_stopping, "),
        ("beamsize=4", "did you mean beam_size?"),
        ("beam_size=4,beam_size=5", "beam_size occurs twice"),
        ("max_length=9", "max_length has a setting of its own, --default-max-length"),
        ("beam_size=0", "beam_size: input should be greater than or equal to 1, not 'beam_size=0'"),
        ("beam_size=4097", "beam_size: input should be less than or equal to 4096"),
        ("beam_size=four", "beam_size: input should be a valid integer"),
        ("length_penalty=nan", "length_penalty: input should be"),
        ("length_penalty=11", "length_penalty: input should be less than or equal to 10"),
        ("repetition_penalty=0", "repetition_penalty: input should be greater than or equal to 0.000001"),
        ("repetition_penalty=inf", "repetition_penalty: input should be a finite number"),
        ("no_repeat_ngram_size=-1", "no_repeat_ngram_size: input should be greater than or equal to 0"),
        ("early_stopping=never", "early_stopping: input should be a valid boolean"),
        ("\x1b[2J=1", r"'\x1b[2J' is none of"),
    ],
)
def test_wrong_text_is_one_sentence(text, problem):
    with pytest.raises(SettingsError) as caught:
        load(["--decoding-defaults", text])
    message = str(caught.value)
    assert message.startswith("--decoding-defaults: ")
    assert problem in message
    assert message.isprintable()


def load(flags=(), environ=()):
    return load_settings(
        ExportSettings, ["model", "-o", "out", *flags], dict(environ), prog="translane export", env_prefix=ENV_PREFIX
    )


def test_where_it_may_come_from(tmp_path):
    expected = SearchDefaults(beam_size=4, length_penalty=0.6)
    text, file = "beam_size=4,length_penalty=0.6", tmp_path / "settings.toml"
    assert load(["--decoding-defaults", text]).decoding_defaults == expected
    assert load(environ={"TRANSLANE_EXPORT_DECODING_DEFAULTS": text}).decoding_defaults == expected
    for value in (f'"{text}"', "{ beam_size = 4, length_penalty = 0.6 }"):
        file.write_text(f"decoding_defaults = {value}\n")
        assert load(["--config", str(file)]).decoding_defaults == expected
    assert load().decoding_defaults is None
    assert load(["--decoding-defaults", "none"]).decoding_defaults == SearchDefaults()
