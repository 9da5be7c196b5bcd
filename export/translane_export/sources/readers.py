"""Readers of checkpoints, one module per format; each recognises its own folders.

Reading a format means two things: its configuration as a `TransformerConfig`, and its weights under the names
`Transformer` gives them. A further architecture of Hugging Face's is one more `Architecture`, and one more name in
`ARCHITECTURES`; a further format is one more reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from translane_export.core.checkpoint import Checkpoint, is_translane_checkpoint, load_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import read_json
from translane_export.sources.architectures import BART, M2M100, MARIAN, MBART, MT5, T5
from translane_export.sources.bundle import is_bundle, read_bundle
from translane_export.sources.fairseq import is_fairseq, read_fairseq
from translane_export.sources.huggingface import CONFIG, Architecture, model_type, read_hugging_face
from translane_export.sources.marian import is_marian, read_marian
from translane_export.sources.opennmt import is_opennmt, read_opennmt
from translane_server.bundle.bundle import MANIFEST
from translane_server.core.errors import is_about_memory
from translane_server.core.terminal import printable


@dataclass(frozen=True)
class Reader:
    """Reads one format of checkpoints.

    Attributes:
        format: what the format is called.
        family: what the bundle's manifest calls the architecture.
        recognises: whether a folder is of this format, judged by the files it has; it may still be broken.
        load: reads such a folder. `read` makes an ExportError of any error that `load` does not foresee.
    """

    format: str
    family: str
    recognises: Callable[[Path], bool]
    load: Callable[[Path], Checkpoint]

    def read(self, folder: Path) -> Checkpoint:
        """Read `folder` with `load`. Anybody may have written its files.

        Raises:
            ExportError: for whatever is wrong, as one sentence. A file may be wrong in ways that no reader foresees: a
                pickle holds any plain values, and a graph any nodes.
        """
        try:
            return self.load(folder)
        except (ExportError, OSError, MemoryError):
            raise
        except Exception as error:
            if is_about_memory(error):
                raise MemoryError from error
            problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise ExportError(
                f"checkpoint {folder}: its files do not make a {self.format} ({printable(problem, 200)})"
            ) from error


def hugging_face_reader(architecture: Architecture) -> Reader:
    """Return the reader of the folders whose config.json names an architecture."""
    kind = architecture.model_type
    return Reader(
        f"Hugging Face {architecture.title}",
        kind,
        lambda folder: model_type(folder) == kind,
        partial(read_hugging_face, architecture),
    )


ARCHITECTURES = (MARIAN, M2M100, MBART, BART, T5, MT5)
READERS = (
    Reader("Translane checkpoint", "transformer", is_translane_checkpoint, load_checkpoint),
    Reader("model bundle", "transformer", is_bundle, read_bundle),
    *map(hugging_face_reader, ARCHITECTURES),
    Reader("fairseq Transformer", "fairseq", is_fairseq, read_fairseq),
    Reader("OpenNMT-py Transformer", "opennmt-py", is_opennmt, read_opennmt),
    Reader("Marian .npz or .bin", "marian", is_marian, read_marian),
)


def find_reader(folder: Path) -> Reader:
    """Return the reader for the checkpoint in `folder`.

    Raises:
        ExportError: there is no such folder, or no reader recognises it.
    """
    if not folder.is_dir():
        what = "it is a file; name the folder that it is in" if folder.is_file() else "there is no such folder"
        raise ExportError(f"checkpoint {folder}: {what}")
    for reader in READERS:
        if reader.recognises(folder):
            return reader
    if found := model_type(folder):
        known = ", ".join(architecture.model_type for architecture in ARCHITECTURES)
        raise ExportError(
            f"checkpoint {folder}: its {CONFIG} says model_type {printable(found, 60)}, and the models that are read"
            f" are encoder-decoders: {known}"
        )
    if bundles := sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}")):
        raise ExportError(
            f"checkpoint {folder}: it is a folder of model bundles, one for each precision; name one of them:"
            f" {' or '.join(bundles)}"
        )
    config = folder / CONFIG
    if config.is_file() and not {"model_type", "format"} & read_json(config).keys():
        raise ExportError(f"{config}: the key model_type is missing")
    known = ", ".join(reader.format for reader in READERS)
    raise ExportError(f"checkpoint {folder}: no known format (known: {known})")
