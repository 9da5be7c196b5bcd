"""The servers that the requests go to: the bundled model under several languages, and servers that refuse soon."""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from helpers.bundles import random_bundle
from helpers.server_process import BUNDLE, ServerProcess, fake_model, running_server
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

FOLDER = Path(__file__).parent

# Copies of the bundled model: what a model knows does not matter where languages choose it.
_MODELS: dict[str, dict[str, list[str]]] = {
    "zh-en": {},
    "en-fr": {"source_languages": ["en"], "target_languages": ["fr"]},  # from Chinese in two steps
    "two-en": {"source_languages": ["ja", "de"], "target_languages": ["en"]},
    "several": {"source_languages": ["sv", "nb", "de"], "target_languages": ["pt-BR", "es", "en"]},
}
_LANGUAGE_TOKENS = {
    "source_languages": ["fi", "et"],
    "target_languages": ["lv", "lt"],
    "language_templates": {
        "source": {"fi": {"source_prefix": [9]}, "et": {"source_prefix": [10], "source_suffix": [11]}},
        "target": {"lv": {"forced": [9]}, "lt": {"forced": [10, 11]}},
    },
}
_GLOSSARIES = {
    "animals.zh.en.tsv": "猫\tkitty\n狗\tpuppy\nTom\tTOM\tignore-case\n",
    "drinks.zh.en.tsv": "茶\ttea\n咖啡\tespresso\n",
    "french.en.fr.tsv": "cat\tchat\n",
}
# The token of each holder is `token(NAME)`.
_KEYS = {
    "open": "",
    "expired": "",
    "few": "sentences_in_flight = 3\n",
    "slow": "sentences_per_second = 0.001\n",
}
_LIMITS = (
    *("--max-batch-size=4", "--max-request-texts=8", "--max-queue-size=40", "--max-beam-size=2", "--max-calls=4"),
    *("--max-source-tokens=20", "--max-target-tokens=200", "--message-timeout=0.2", "--request-timeout=1"),
    *("--max-message-bytes=4096", "--max-bytes-in-flight=12288"),
)


@dataclass(frozen=True)
class Ports:
    """Where a server takes calls; the HTTP port is 0 where there is none."""

    service: grpc.Channel
    admin: grpc.Channel
    http: int


def token(holder: str) -> str:
    """The key of a holder of keys."""
    return f"tl_{hashlib.sha256(holder.encode()).hexdigest()}"


@contextmanager
def _models(folder: Path) -> Iterator[Ports]:
    for name, changes in _MODELS.items():
        _copy(BUNDLE, folder / "models" / name, {"name": name, **changes})
    tiny = random_bundle(folder / "tiny", export={"shortlist": FOLDER / "tiny.vmap"}, eos_bias=2.0)
    _copy(tiny, folder / "models" / "tiny", {"name": "tiny", "source_languages": ["ko"]})
    _copy(tiny, folder / "models" / "multilingual", {"name": "multilingual", **_LANGUAGE_TOKENS})
    for name, lines in _GLOSSARIES.items():
        (folder / name).write_text(lines, encoding="utf-8")
    flags = (f"--models={folder / 'models'}", f"--glossaries={folder}", "--admin-port=0", "--http-port=0")
    with _serving(folder, *flags) as ports:
        (folder / "models" / "broken").mkdir()  # the server does not start with such a model
        (folder / "models" / "broken" / "manifest.json").write_text("{}", encoding="utf-8")
        yield ports


@contextmanager
def _keys(folder: Path) -> Iterator[Ports]:
    lines = []
    for holder, limits in _KEYS.items():
        expires = ", expires = 2020-01-01T00:00:00Z" if holder == "expired" else ""
        digest = hashlib.sha256(token(holder).encode()).hexdigest()
        lines.append(f'[{holder}]\n{limits}keys = [{{sha256 = "{digest}"{expires}}}]\n')
    (folder / "keys.toml").write_text("".join(lines), encoding="utf-8")
    with _serving(
        folder, f"--keys-file={folder / 'keys.toml'}", "--cache-bytes=1000000", "--max-batch-size=16"
    ) as ports:
        yield ports


@contextmanager
def _limits(folder: Path) -> Iterator[Ports]:
    with _serving(folder, *_LIMITS) as ports:
        yield ports


@contextmanager
def _faults(folder: Path) -> Iterator[Ports]:
    """A model that cannot decode the letter that is its poison, and fails at another."""
    with _serving(folder, "x", **fake_model(FAKE_POISON="x")) as ports:
        yield ports


SERVERS: dict[str, Callable[[Path], Any]] = {"keys": _keys, "limits": _limits, "faults": _faults, "models": _models}


@contextmanager
def servers(folder: Path) -> Iterator[Callable[[str], Ports]]:
    """Give a function that starts the server for a file of requests; files without one of their own share `models`."""
    with ExitStack() as stack:
        started: dict[str, Ports] = {}

        def server_of(file: str) -> Ports:
            name = file if file in SERVERS else "models"
            if name not in started:
                (folder / name).mkdir()
                started[name] = stack.enter_context(SERVERS[name](folder / name))
            return started[name]

        yield server_of


@contextmanager
def _serving(folder: Path, *flags: str, **more: Any) -> Iterator[Ports]:
    with (
        running_server(folder / "log", *flags, "--replicas=1", "--threads=1", **more) as server,
        grpc.insecure_channel(server.address) as channel,
        grpc.insecure_channel(f"127.0.0.1:{_port(server, 'unloaded on')}") as admin,
    ):
        _wait_for_models(channel)
        yield Ports(channel, admin, _port(server, "JSON on"))


def _wait_for_models(channel: grpc.Channel) -> None:
    """A server serves as soon as its first model does."""
    stub = translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    key = [("authorization", f"Bearer {token('open')}")]
    while any(
        model.state == pb.MODEL_STATE_LOADING for model in stub.ListModels(pb.ListModelsRequest(), metadata=key).models
    ):
        time.sleep(0.02)


def _port(server: ServerProcess, after: str) -> int:
    found = re.search(rf"{after} \S*:(\d+)", server.log)
    return int(found[1]) if found else 0


def _copy(bundle: Path, folder: Path, changes: dict[str, Any]) -> None:
    shutil.copytree(bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").write_text(json.dumps(manifest | changes), encoding="utf-8")
