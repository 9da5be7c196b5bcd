"""The programs of docs/coming-from.md, before and after, with random models on a hub on loopback."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers.hub import Hub
from helpers.hugging_face import draw_marian
from helpers.server_process import running_server

pytestmark = pytest.mark.slow  # each program starts and imports much

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    models = {}
    for short, code in (("de", "deu"), ("fr", "fra")):
        folder = models[f"owner/opus-mt-{short}-en"] = tmp_path_factory.mktemp(code) / f"opus-mt-{short}-en"
        folder.mkdir()
        draw_marian(folder)
        settings = folder / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"source_lang": code}))
    with Hub(models) as hub:
        yield hub


@pytest.fixture
def environ(tmp_path, hub):
    return hub.environ(tmp_path)


def programs(tool, kind):
    """The programs of the page for those who come from a tool: before and after."""
    section = PAGE.split(f"\n## From {tool}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL)


def printed(program, environ, folder):
    command = [sys.executable, "-W", "ignore", "-c", program.replace("Helsinki-NLP/", "owner/")]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, cwd=folder)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_what_the_page_says_to_those_who_come_from_transformers(environ, tmp_path):
    """Both programs of the page print a translation of each text, and nothing else."""
    # That beams are the same, models that end their sentences show: parity/export/test_huggingface.
    before, after = programs("transformers", "python")
    assert [len(printed(program, environ, tmp_path)) for program in (before, after)] == [2, 2]


def test_what_the_page_says_to_those_who_come_from_easynmt(environ, tmp_path):
    before, after = programs("EasyNMT", "python")
    assert len(printed(after, environ, tmp_path)) == 2
    if find_spec("easynmt"):
        assert printed(before, os.environ, tmp_path)


def test_what_the_page_says_to_those_who_come_from_ctranslate2_and_libretranslate(environ, hub, tmp_path):
    """The commands export a folder and serve it, and the request of the page is answered as its table says."""
    (tmp_path / "opus-mt-de-en").symlink_to(hub.models["owner/opus-mt-de-en"])
    before, after = programs("CTranslate2", "sh")
    export, serve = after.splitlines()
    bin = Path(sys.executable).parent
    environ["PATH"] = f"{bin}:{environ['PATH']}"
    subprocess.run(["sh", "-c", export], env=environ, check=True, capture_output=True, timeout=300, cwd=tmp_path)
    if shutil.which("ct2-transformers-converter"):
        convert = before.replace("Helsinki-NLP/", "")
        subprocess.run(["sh", "-c", convert], env=environ, check=True, capture_output=True, timeout=300, cwd=tmp_path)

    command, action, model, flag, port = serve.split()
    assert (command, action, flag) == ("translane", "serve", "--http-port")
    _, request = programs("LibreTranslate", "sh")
    assert f"localhost:{port}/" in request
    with running_server(tmp_path / "log", str(tmp_path / model), flag, "0") as server:
        asked = request.replace(f"localhost:{port}", f"127.0.0.1:{server.http_port}")
        run = subprocess.run(["sh", "-c", asked], capture_output=True, check=True, timeout=60)
    (translation,) = json.loads(run.stdout)["translations"]
    assert len(translation["hypotheses"]) == 1
