"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import sentencepiece
from sentencepiece.sentencepiece_pb2 import SentencePieceText  # type: ignore[attr-defined]  # made at import

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

    Target texts are the tokens' surfaces one after the other, less the first space, as UTF-8 with U+FFFD for each part
    that is none. That is what SentencePiece decodes to, but for texts that begin with more than one space (it drops
    them all), or with the unknown token's or a byte's (it keeps that one), and for broken characters (it writes U+FFFD
    for each of their bytes). Vocabularies that mark spaces at the end of words are not supported, nor are those with
    rules for denormalization.

    Args:
        source: splits source texts.
        target: of the target texts.
        eos: the end-of-sentence id, with which sources end.
        target_vocab_size: how many target ids the model has; those beyond SentencePiece's add nothing to a text.
    """

    def __init__(
        self,
        source: sentencepiece.SentencePieceProcessor,
        target: sentencepiece.SentencePieceProcessor,
        eos: int,
        target_vocab_size: int,
    ) -> None:
        self._source = source
        self._target = target
        self._eos = eos
        self._unknown = target.unk_id()
        self.target_surfaces: Sequence[bytes] = tuple(_surface(target, token) for token in range(target_vocab_size))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.encode`."""
        return [[*ids, self._eos] if ids else [] for ids in _encode(self._source, texts)]

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.encode_target`."""
        return _encode(self._target, texts)

    def decode(self, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]] = ()) -> list[str]:
        """See `Tokenizer.decode`."""
        return [
            self._decode_one(sentence, replaced)
            for sentence, replaced in zip(ids, unknowns or [{}] * len(ids), strict=True)
        ]

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer.source_pieces`."""
        return _pieces(self._source, ids)

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer.target_pieces`."""
        return _pieces(self._target, ids)

    def source_surfaces(self, text: str) -> list[str]:
        """See `Tokenizer.source_surfaces`.

        Where several tokens stand for one character, as bytes do and as the tokens of its normal form do, it is the
        surface of each.
        """
        encoded = SentencePieceText.FromString(self._source.encode(text, out_type="serialized_proto"))
        surfaces = [""]  # of the end of the sentence; from here back to the start
        for token in reversed(encoded.pieces):  # SentencePiece gives a character to the last of its tokens
            shares = not token.surface and token.piece != _SPACE
            surfaces.append(surfaces[-1] if shares else token.surface)
        return surfaces[::-1] if encoded.pieces else []

    def _decode_one(self, ids: Sequence[int], unknowns: Mapping[int, str]) -> str:
        surfaces = self.target_surfaces
        parts = [surfaces[token] for token in ids]
        for position, text in unknowns.items():
            assert ids[position] == self._unknown, "only unknown tokens are replaced"
            parts[position] = text.encode()
        return b"".join(parts).removeprefix(b" ").decode(errors="replace")


def _encode(processor: sentencepiece.SentencePieceProcessor, texts: Sequence[str]) -> list[list[int]]:
    # one thread: the default is one for each of the host's cores, however few of them are granted
    encoded: list[list[int]] = processor.encode(list(texts), out_type=int, num_threads=1)
    return encoded


def _pieces(processor: sentencepiece.SentencePieceProcessor, ids: Sequence[int]) -> list[str]:
    known = processor.get_piece_size()  # a padded vocabulary has ids without a piece
    return [processor.id_to_piece(token) if token < known else f"<{token}>" for token in ids]


def _surface(processor: sentencepiece.SentencePieceProcessor, token: int) -> bytes:
    if token >= processor.get_piece_size() or processor.is_control(token):
        return b""
    if processor.is_unknown(token):
        return str(processor.decode([token])).encode()
    piece: str = processor.id_to_piece(token)
    if processor.is_byte(token):
        return bytes([int(piece[len("<0x") : -len(">")], 16)])
    return piece.replace(_SPACE, " ").encode()


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer of `bundle`.

    Raises:
        BundleError: its files are not what the manifest says they are.
    """
    manifest, entry = bundle.manifest, bundle.manifest.tokenizer
    assert entry.kind == "sentencepiece"
    source = _load_sentencepiece(bundle, entry.source, manifest.architecture.source_vocab_size)
    target = _load_sentencepiece(bundle, entry.target, manifest.architecture.target_vocab_size)
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
