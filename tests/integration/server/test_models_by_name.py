"""A model by its name: what lies on a Hugging Face Hub, or in a folder, is exported once and served.

The hub is one on loopback, which huggingface_hub itself asks.
"""

import hashlib
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.file_server import FileServer, wait_until
from helpers.firefox_list import FirefoxList
from helpers.hub import Hub
from helpers.hugging_face import draw_marian
from helpers.marian_students import needs_students, tiny_student
from helpers.tiny_bundle import TINY
from translane.__main__ import main
from translane_server.models import checkpoints
from translane_server.settings.model_sources import BUNDLED_MODEL_URL

pytestmark = pytest.mark.slow  # each command starts and imports much

ROOT = Path(__file__).parents[3]
NAME = "owner/opus-mt-zh-en"
TEXT = "我有一只猫"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A Marian checkpoint with random weights, in the safe format, beside a pickle that nobody should read."""
    folder = tmp_path_factory.mktemp("checkpoint")
    draw_marian(folder)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "tf_model.h5").write_bytes(b"of another framework")
    return folder


@pytest.fixture(scope="module")
def hub(checkpoint):
    with Hub({NAME: checkpoint, "owner/second": checkpoint}) as hub:
        yield hub


@pytest.fixture
def environ(tmp_path, hub):
    return hub.environ(tmp_path)


def check(environ, *arguments, prelude=""):
    """Look at models as `translane serve --check` does. `prelude` is Python that runs before."""
    program = f"import sys\n{prelude}\nfrom translane.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "serve", "--check", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)


def test_a_name_is_exported_once_and_served_offline_afterwards(environ, hub, tmp_path):
    hub.asked.clear()
    first = check(environ, NAME, "again=owner/second", "zh-en")
    assert first.returncode == 0, first.stderr
    assert re.search(r"model opus-mt-zh-en: version 1@\w+, fp32, on cpu", first.stdout)
    assert re.findall(r"model (\S+): version", first.stdout) == ["opus-mt-zh-en", "again", "zh-en"]
    assert f"exporting {NAME} to {tmp_path}/cache/translane/models/exported/opus-mt-zh-en-" in first.stderr
    assert "model.safetensors" in hub.downloads()
    assert not {"pytorch_model.bin", "tf_model.h5"} & set(hub.downloads())

    hub.asked.clear()
    second = check(environ, f"mine={NAME}@main")  # the same revision
    assert "model mine: version 1@" in second.stdout
    assert ("exporting" in second.stderr, hub.downloads()) == (False, [])
    offline = check(environ | {"HF_HUB_OFFLINE": "1"}, NAME)
    assert (offline.returncode, "exporting" in offline.stderr) == (0, False), offline.stderr

    program = f"from translane import Translator\nwith Translator({NAME!r}) as t: print(t.translate({TEXT!r}).text)"
    run = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=300)
    assert (run.returncode, "exporting" in run.stderr) == (0, False), run.stderr
    assert run.stdout.strip()

    (tmp_path / "corpus.txt").write_text(f"{TEXT}\n", encoding="utf-8")
    command = [sys.executable, "-m", "translane", "batch", "corpus.txt", "-o", "out", "--model", NAME]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (run.returncode, "exporting" in run.stderr) == (0, False), run.stderr
    assert (tmp_path / "out/corpus.txt").read_text(encoding="utf-8").strip()


def test_the_bundled_model_is_that_of_a_clone_or_comes_from_the_release(tmp_path, monkeypatch, capsys):
    digest = hashlib.sha256((ROOT / "models/zh-en/manifest.json").read_bytes()).hexdigest()
    assert BUNDLED_MODEL_URL.endswith(f"/zh-en-{digest[:8]}@sha256:{digest}")
    monkeypatch.setattr("translane_server.app.lifetime.configure_logging", lambda _format, _level: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def checked(installed_from, folder, *arguments):
        """What the command says within this process."""
        monkeypatch.setattr(checkpoints, "_installed_from", lambda: installed_from)
        monkeypatch.chdir(folder)
        main(["serve", "--check", "zh-en", *arguments], {})
        return capsys.readouterr()

    other = tmp_path / "other"
    shutil.copytree(TINY, other / "models/zh-en")  # what somebody has put where a clone was
    (other / "inside").mkdir()
    for installed_from, folder in ((ROOT, other), (None, ROOT / "docs"), (other, ROOT)):
        found = checked(installed_from, folder)
        assert "model zh-en: version 1@" in found.out, found.err
        assert not (tmp_path / "cache").exists()

    gone = checked(None, other / "inside", "--bundled-model", f"http://127.0.0.1:9/gone@sha256:{digest}")
    assert re.match("translane serve: zh-en is in no clone here: run this within a clone .*the connection", gone.err)
    assert "times" not in gone.err
    with FileServer() as release:
        release.put(ROOT / "models/zh-en", "release")
        url = f"{release.url}/release@sha256:{digest}"
        for installed_from in (None, other, Path("/dev/null")):
            downloaded = checked(installed_from, other / "inside", "--bundled-model", url)
            assert f"model bundle {url}: sha256:{digest} is in {tmp_path}/cache" in downloaded.out, downloaded.err


def test_a_folder_is_exported_anew_when_its_files_change(environ, checkpoint, tmp_path):
    folder = tmp_path / "a model"
    shutil.copytree(checkpoint, folder)
    assert check(environ, str(folder)).returncode == 0
    without = "sys.modules['torch'] = None"
    assert check(environ, f"mine={folder}", prelude=without).returncode == 0
    (folder / "generation_config.json").write_text('{"num_beams": 3}')
    assert f"{folder} is no bundle, and PyTorch" in check(environ, str(folder), prelude=without).stderr


def test_a_killed_download_leaves_no_half_of_a_model(environ, hub, tmp_path):
    hub.asked.clear()
    hub.holds["model.safetensors"] = 1000
    command = [sys.executable, "-m", "translane", "serve", "--check", NAME]
    process = subprocess.Popen(command, env=environ, stdout=-1, stderr=-1)
    try:
        wait_until(lambda: "model.safetensors" in hub.downloads())
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        del hub.holds["model.safetensors"]
    assert not list((tmp_path / "cache/translane/models/exported").glob("*/"))
    assert check(environ, NAME).returncode == 0


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("owner/other", {}, r"owner/other: the Hugging Face Hub knows no such model or revision, or .* \(status 40"),
        (f"{NAME}@v9", {}, r"knows no such model or revision, or HF_TOKEN may not read it \(status 404\)"),
        (NAME, {"HF_ENDPOINT": "http://127.0.0.1:9"}, f"{NAME} is neither a folder nor in the cache of the"),
        (NAME, {"HF_HUB_OFFLINE": "1"}, f"{NAME} is neither a folder nor in the cache of the Hugging Face Hub"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(environ, name, changes, sentence):
    run = check(environ | changes, name)
    assert run.returncode == 1
    assert re.search(f"^translane serve: .*{sentence}", run.stderr)
    assert len(run.stderr.splitlines()) == 1


def test_a_token_is_shown_to_the_hub_and_to_nobody_else(environ, checkpoint):
    with Hub({NAME: checkpoint}, token="hf_secret") as hub:
        refused = check(environ | {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_wrong"}, NAME)
        assert "(status 401)" in refused.stderr
        # Without PyTorch nothing is downloaded that nobody could read.
        known = environ | {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret"}
        run = check(known, NAME, prelude="sys.modules['torch'] = None")
        assert run.returncode == 1
        assert "PyTorch" in run.stderr
        assert "pip install 'translane[export]'" in run.stderr
        assert hub.downloads() == []
        assert "hf_secret" not in run.stdout + run.stderr


@needs_students
def test_a_model_of_firefox_is_fetched_and_exported_once_in_its_own_precision(environ, tmp_path):
    floats = tiny_student(tmp_path / "floats")
    with FirefoxList() as models:
        for path in tiny_student(tmp_path / "student", int8=True).iterdir():
            models.add(path.name.partition(".")[0], path.name, path.read_bytes())
        environ["TRANSLANE_FIREFOX_MODELS"] = models.url
        first = check(environ, "firefox:de-en", f"floats={floats}")
        assert first.returncode == 0, first.stderr
        found = re.findall(r"model (\S+): version 1@\w+, (\w+), on cpu", first.stdout)
        assert found == [("de-en", "int8"), ("floats", "fp32")]
    program = "from translane import Translator\nwith Translator('firefox:de-en') as t: t.translate('Guten Tag.')"
    command = [sys.executable, "-c", program]
    gone = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert (gone.returncode, "the last one holds" in gone.stderr) == (0, True), gone.stderr
    assert "exporting" not in gone.stderr
