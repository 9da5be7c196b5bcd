"""Folders that OpenNMT-tf saved (tests/data/opennmt_tf), and what OpenNMT-tf and CTranslate2 make of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from translane_export.sources.opennmt_tf_settings import read_data_settings, read_vocabulary

FOLDERS = Path(__file__).parents[1] / "data" / "opennmt_tf"
NAMES = ("base", "post_norm", "relative", "learned")
START, END = 2, 3  # ids of a checkpoint that is read


@dataclass(frozen=True)
class OpenNmtTfFolder:
    """A folder, and its vocabularies by id as they are read.

    Attributes:
        places: the id in OpenNMT-tf of each target id.
        expected: "sources", "forced" targets with logits, and translations of "ctranslate2" by the number of beams.
    """

    folder: Path
    source: tuple[str, ...]
    target: tuple[str, ...]
    places: torch.Tensor
    expected: dict[str, Any]

    def source_ids(self, text: str) -> list[int]:
        """The ids of pieces with spaces between them, with the symbols that the folder's settings ask for."""
        settings = read_data_settings(self.folder)
        ids = [self.source.index(word) for word in text.split()]
        return [START] * settings.source_start + ids + [END] * settings.source_end

    def target_ids(self, text: str) -> list[int]:
        """The ids of pieces with spaces between them."""
        return [self.target.index(word) for word in text.split()]


def opennmt_tf_folder(name: str, folder: Path | None = None) -> OpenNmtTfFolder:
    """Read what is in a folder beside the checkpoint."""
    folder = folder or FOLDERS / name
    settings = read_data_settings(folder)
    source, target = read_vocabulary(settings.source), read_vocabulary(settings.target)
    expected = json.loads((folder / "expected.json").read_text())
    return OpenNmtTfFolder(folder, source.words, target.words, target.places, expected)
