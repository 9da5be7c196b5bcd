"""A folder of models with versions of the bundled one, for servers that load new versions while they serve."""

import json
import shutil
from pathlib import Path

import grpc

from helpers.server_process import BUNDLE
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc


class ModelFolder:
    """A folder for `--models`: one model, in the folder `zh-en`, with a folder for each version.

    Args:
        folder: is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._model = folder / "zh-en"
        self._model.mkdir(parents=True)
        self.last = 0

    def publish(self) -> str:
        """Add the next version, whole in one moment, and return its name."""
        self.last += 1
        made = self._copied()
        manifest = json.loads((made / "manifest.json").read_text(encoding="utf-8"))
        manifest["version"] = str(self.last)
        (made / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        made.rename(self._model / str(self.last))
        return str(self.last)

    def publish_broken(self, file: str) -> None:
        """Add the next version, one file of which lacks its second half. The name of a good one may follow it."""
        made = self._copied()
        content = (made / file).read_bytes()
        (made / file).write_bytes(content[: len(content) // 2])
        made.rename(self._model / str(self.last + 1))

    def remove(self, version: int) -> None:
        """Remove a version."""
        shutil.rmtree(self._model / str(version))

    def _copied(self) -> Path:
        made = self.folder.parent / "made"
        shutil.copytree(BUNDLE, made)
        return made


def served_versions(address: str) -> list[str]:
    """The versions of the models that ListModels lists."""
    with grpc.insecure_channel(address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
        return [model.version for model in stub.ListModels(pb.ListModelsRequest(), timeout=30).models]
