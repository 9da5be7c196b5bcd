"""A checkpoint's tokenizer, on its way into a bundle."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from translane_export.core.errors import ExportError
from translane_export.model import TransformerConfig
from translane_server.bundle.manifest import JsonTokenizerEntry, Languages, SentencePieceTokenizerEntry, SpecialIds
from translane_server.core.files import read_regular
from translane_server.text.tokenizer import ModelIds, Tokenizer, make_tokenizer

_SOURCE, _TARGET = "source.spm", "target.spm"


@dataclass(frozen=True)
class TokenizerFiles:
    """What the manifest says of a tokenizer, and where each file is that it names, or what is in it."""

    entry: SentencePieceTokenizerEntry | JsonTokenizerEntry
    files: Mapping[str, Path | bytes]

    def read(self, name: str) -> bytes:
        """Content of the file `name`. Raises OSError when it cannot be read."""
        content = self.files[name]
        return content if isinstance(content, bytes) else read_regular(content)

    def load(self, config: TransformerConfig, languages: Languages) -> Tokenizer:
        """The tokenizer, as the server makes it of the bundle.

        Raises:
            ExportError: its files are not what they should be, or do not fit the model.
        """
        ids = ModelIds(special_ids(config), config.source_vocab_size, config.target_vocab_size, languages.templates)
        try:
            return make_tokenizer(self.entry, ids, self.read)
        except ValueError as error:
            raise ExportError(f"checkpoint: its tokenizer's {error}") from None

    def sentencepiece_models(self) -> tuple[Path, Path]:
        """Where the two SentencePiece models of a checkpoint of ours are. Raises ExportError where it has none."""
        if not isinstance(self.entry, SentencePieceTokenizerEntry):
            raise ExportError(f"checkpoint: its tokenizer is {', '.join(self.files)}, and no SentencePiece models")
        source, target = self.files[self.entry.source], self.files[self.entry.target]
        assert isinstance(source, Path)
        assert isinstance(target, Path)
        return source, target

    def write(self, folder: Path) -> None:
        """Write the files to `folder`."""
        for name, content in self.files.items():
            if isinstance(content, bytes):
                (folder / name).write_bytes(content)
            else:
                shutil.copyfile(content, folder / name)


def special_ids(config: TransformerConfig) -> SpecialIds:
    """Return the special ids of a model as the manifest has them."""
    return SpecialIds(
        pad=config.pad_id, unk=config.unk_id, bos=config.bos_id, eos=config.eos_id, decoder_start=config.start_id
    )


def sentencepiece_files(source: Path, target: Path) -> TokenizerFiles:
    """Two SentencePiece models whose ids are the model's; stored once where they are the same."""
    if source == target or read_regular(source) == read_regular(target):
        return TokenizerFiles(SentencePieceTokenizerEntry(source=_SOURCE, target=_SOURCE), {_SOURCE: source})
    entry = SentencePieceTokenizerEntry(source=_SOURCE, target=_TARGET)
    return TokenizerFiles(entry, {_SOURCE: source, _TARGET: target})


def json_files(source: Path, target: Path, *, source_eos: bool) -> TokenizerFiles:
    """A tokenizer.json for each side, whose ids are the model's."""
    entry = JsonTokenizerEntry(file=source.name, target=target.name, source_eos=source_eos)
    return TokenizerFiles(entry, {source.name: source, target.name: target})
