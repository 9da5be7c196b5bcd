"""Text to token ids and back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import sentencepiece

from translane_server.bundle import Bundle
from translane_server.errors import BundleError

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how a piece spells it


class Tokenizer(Protocol):
    """Safe to call from several threads at once."""

    @property
    def target_surfaces(self) -> Sequence[bytes]:
        """For each target id the UTF-8 it adds to a text; see `TargetVocabulary.surfaces`."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Source ids of each text, ended by the end-of-sentence id; an empty list where a text has no tokens."""

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Target ids of each text, without the end-of-sentence id."""

    def decode(self, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]] = ()) -> list[str]:
        """Target texts of lists of ids, which hold no end-of-sentence id.

        `unknowns` has for each list what to write for the unknown tokens at some of its positions.
        """

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """The source tokens as the vocabulary spells them."""

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """The target tokens as the vocabulary spells them."""

    def source_surfaces(self, text: str) -> list[str]:
        """For each token of `encode([text])` the part of `text` it stands for; empty for the end of the sentence."""


class SentencePieceTokenizer:
    """Kudo and Richardson 2018, https://aclanthology.org/D18-2012.

    Args:
        source: the source vocabulary.
        target: the target vocabulary.
        eos: the end-of-sentence id, of both.
        target_vocab_size: V, how many target ids the model has; more than the vocabulary where it was padded.
    """

    def __init__(
        self,
        source: sentencepiece.SentencePieceProcessor,
        target: sentencepiece.SentencePieceProcessor,
        eos: int,
        target_vocab_size: int | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._eos = eos
        self._pieces = target.get_piece_size()
        self._surfaces = _surfaces(target, target_vocab_size or self._pieces)

    @property
    def target_surfaces(self) -> Sequence[bytes]:
        """See `Tokenizer.target_surfaces`."""
        return self._surfaces

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.encode`."""
        # one thread: the default is one for each of the host's cores, however few of them are granted
        encoded = self._source.encode(list(texts), out_type=int, num_threads=1)
        return [[*ids, self._eos] if ids else [] for ids in encoded]

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.encode_target`."""
        ids: list[list[int]] = self._target.encode(list(texts), out_type=int, num_threads=1)
        return ids

    def decode(self, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]] = ()) -> list[str]:
        """See `Tokenizer.decode`."""
        # sentence by sentence, for the same reason
        replacements = unknowns or [{}] * len(ids)
        return [self._decode(*each) for each in zip(ids, replacements, strict=True)]

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer.source_pieces`."""
        return [self._source.id_to_piece(i) for i in ids]

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer.target_pieces`."""
        return [self._target.id_to_piece(i) if i < self._pieces else f"<{i}>" for i in ids]

    def source_surfaces(self, text: str) -> list[str]:
        """See `Tokenizer.source_surfaces`."""
        pieces = self._source.encode(text, return_type="proto").pieces
        return [*(piece.surface for piece in pieces), ""]

    def _decode(self, ids: Sequence[int], unknowns: Mapping[int, str]) -> str:
        if not unknowns:
            text: str = self._target.decode([i for i in ids if i < self._pieces])
            return text
        surfaces = [
            f" {unknowns[place]} ".encode() if place in unknowns else self._surfaces[i] for place, i in enumerate(ids)
        ]
        text = b"".join(surfaces).decode(errors="replace")
        return re.sub(" {2,}", " ", text).strip(" ")


def _surfaces(processor: sentencepiece.SentencePieceProcessor, vocab_size: int) -> tuple[bytes, ...]:
    """What each id adds to a text: a space for the sign that stands for one, nothing for control tokens and padding."""
    surfaces = []
    for i in range(processor.get_piece_size()):
        if processor.is_control(i) or processor.is_unused(i):
            surfaces.append(b"")
        elif processor.is_unknown(i):
            surfaces.append(processor.decode([i]).encode())
        elif processor.is_byte(i):
            surfaces.append(bytes([int(processor.id_to_piece(i)[3:-1], 16)]))
        else:
            surfaces.append(processor.id_to_piece(i).replace(_SPACE, " ").encode())
    return (*surfaces, *[b""] * (vocab_size - len(surfaces)))


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer of `bundle`.

    Raises:
        BundleError: its files are not what the manifest says they are.
    """
    manifest = bundle.manifest
    source = _load_sentencepiece(bundle, manifest.tokenizer.source, manifest.architecture.source_vocab_size)
    target = _load_sentencepiece(bundle, manifest.tokenizer.target, manifest.architecture.target_vocab_size)
    return SentencePieceTokenizer(source, target, manifest.special_ids.eos, manifest.architecture.target_vocab_size)


def _load_sentencepiece(bundle: Bundle, name: str, vocab_size: int) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(bundle.path(name).read_bytes())
    except (OSError, RuntimeError):
        raise BundleError(f"model bundle {bundle.folder}: {name} is not a SentencePiece model") from None
    if processor.get_piece_size() > vocab_size:
        raise BundleError(
            f"model bundle {bundle.folder}: {name} has {processor.get_piece_size()} pieces,"
            f" and the model embeds {vocab_size}"
        )
    return processor
