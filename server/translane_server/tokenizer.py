"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import sentencepiece

from translane_server.bundle import Bundle
from translane_server.errors import BundleError


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
    """Kudo and Richardson 2018, https://aclanthology.org/D18-2012."""

    def __init__(
        self, source: sentencepiece.SentencePieceProcessor, target: sentencepiece.SentencePieceProcessor, eos: int
    ) -> None:
        self._source = source
        self._target = target
        self._eos = eos
        self._pieces = target.get_piece_size()  # a padded vocabulary has ids without a piece

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.encode`."""
        # one thread: the default is one for each of the host's cores, however few of them are granted
        encoded = self._source.encode(list(texts), out_type=int, num_threads=1)
        return [[*ids, self._eos] if ids else [] for ids in encoded]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """See `Tokenizer.decode`."""
        # sentence by sentence, for the same reason
        return [self._target.decode([i for i in sentence if i < self._pieces]) for sentence in ids]


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer of `bundle`.

    Raises:
        BundleError: its files are not what the manifest says they are.
    """
    manifest = bundle.manifest
    source = _load_sentencepiece(bundle, manifest.tokenizer.source, manifest.architecture.source_vocab_size)
    target = _load_sentencepiece(bundle, manifest.tokenizer.target, manifest.architecture.target_vocab_size)
    return SentencePieceTokenizer(source, target, manifest.special_ids.eos)


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
