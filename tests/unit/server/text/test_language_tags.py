import pytest

from translane_server.text.language_tags import lookup, standard_tag


@pytest.mark.parametrize(
    ("wanted", "available", "found"),
    [
        ("zh", ["zh"], "zh"),
        ("zh-CN", ["zh"], "zh"),
        ("ZH-hant-tw", ["zh", "zh-Hant"], "zh-Hant"),
        ("zh-Hans-x-private", ["zh-Hans"], "zh-Hans"),
        ("en-a-bbb", ["en", "en-a"], "en"),
        ("zh", ["zh-Hans"], "zh-Hans"),
        ("zh-Hant", ["zh-Hans"], None),
        ("en", ["en-GB"], "en-GB"),
        ("en-US", ["en-GB"], None),
        ("en", ["en-GB", "en-US"], None),
        ("zho", ["zh"], "zh"),
        ("zh_CN", ["zh"], "zh"),
        ("cmn-Hant", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("eng_Latn", ["en"], "en"),
        ("NO", ["nn", "nb"], "nb"),
        ("-", ["zh"], None),
        ("*", ["zh"], None),
        ("", ["zh"], None),
        ("fr", ["und"], "und"),
        ("", ["und"], None),
    ],
)
def test_lookup(wanted, available, found):
    assert lookup(wanted, available) == found


NLLB = [
    "ace_Arab",
    "ace_Latn",
    "arb_Arab",
    "acm_Arab",
    "eng_Latn",
    "nob_Latn",
    "pes_Arab",
    "srp_Cyrl",
    "zho_Hans",
    "zho_Hant",
]
MBART = ["ar_AR", "de_DE", "en_XX", "pt_XX", "zh_CN"]


@pytest.mark.parametrize(
    ("wanted", "available", "found"),
    [
        ("eng_Latn", NLLB, "eng_Latn"),
        ("ENG-latn", NLLB, "eng_Latn"),
        ("en", NLLB, "eng_Latn"),
        ("en-GB", NLLB, "eng_Latn"),
        ("ar", NLLB, "arb_Arab"),
        ("fa", NLLB, "pes_Arab"),
        ("no", NLLB, "nob_Latn"),
        ("zh", NLLB, "zho_Hans"),
        ("zh-Hans", NLLB, "zho_Hans"),
        ("zh-TW", NLLB, "zho_Hant"),
        ("ace", NLLB, None),
        ("ace-Latn", NLLB, "ace_Latn"),
        ("sr-Latn", NLLB, None),
        ("en_XX", MBART, "en_XX"),
        ("en", MBART, "en_XX"),
        ("de-AT", MBART, "de_DE"),
        ("pt-BR", MBART, "pt_XX"),
        ("zh-Hans", MBART, "zh_CN"),
        ("zho_Hans", MBART, "zh_CN"),
        ("zh-Hant", MBART, None),
        ("zh-TW", MBART, None),
    ],
)
def test_codes_of_models_are_found_by_tags_and_by_codes_of_others(wanted, available, found):
    assert lookup(wanted, available) == found


@pytest.mark.parametrize(
    ("code", "tag"),
    [("zho_Hant", "zh-hant"), ("pt_XX", "pt"), ("zh_CN", "zh-hans"), ("pt-BR", "pt-br"), ("kab", "kab"), ("ZH", "zh")],
)
def test_standard_tags(code, tag):
    assert standard_tag(code) == tag


def test_a_long_tag_means_nothing():
    """Dropping its subtags one by one would take hours."""
    assert lookup("zh-" + "a" * 97, ["zh"]) == "zh"
    assert lookup("zh-" + "a" * 98, ["zh"]) is None
    assert lookup("zh" + "-a" * 2_000_000, ["zh", "und"]) is None
