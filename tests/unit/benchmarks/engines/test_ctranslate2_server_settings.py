"""The ways to run CTranslate2's server."""

from benchmarks.engines.ctranslate2_server_settings import ServerSetting, replaced


def test_settings_have_names_of_their_own():
    setting = ServerSetting("oneDNN", 2, 1)
    changed = [replaced(setting, **{name: 7}) for name in ("batch_size", "wait", "queued")]
    assert str(setting) == "2 × 1 oneDNN, batches of 32"
    assert len({str(each) for each in (setting, *changed)}) == 4
