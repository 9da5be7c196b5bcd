import pytest

from translane_server.languages import lookup


@pytest.mark.parametrize(
    ("wanted", "available", "found"),
    [
        ("zh", ["zh"], "zh"),
        ("zh-CN", ["zh"], "zh"),
        ("ZH-hant-tw", ["zh", "zh-Hant"], "zh-Hant"),
        ("zh-Hans-x-private", ["zh-Hans"], "zh-Hans"),
        ("en-a-bbb", ["en", "en-a"], "en"),
        ("zh", ["zh-Hans"], None),
        ("zho", ["zh"], None),
        ("zh_CN", ["zh"], None),
        ("-", ["zh"], None),
        ("*", ["zh"], None),
    ],
)
def test_lookup(wanted, available, found):
    assert lookup(wanted, available) == found
