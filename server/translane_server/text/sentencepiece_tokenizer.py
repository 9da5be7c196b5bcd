"""The vocabulary of a SentencePiece model, with the ids of the translation model or of SentencePiece."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import sentencepiece
from sentencepiece.sentencepiece_pb2 import SentencePieceText  # type: ignore[attr-defined]  # made at import

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how a piece spells a space


class SentencePieceVocabulary:
    """Implements `Vocabulary` with SentencePiece (Kudo and Richardson 2018, https://aclanthology.org/D18-2012).

    Without `ids`, a piece has SentencePiece's id, and so has the unknown token. With `ids`, a piece that is missing in
    `ids` is unknown. A part of a text that is in `ids` has its id, even if the SentencePiece model has no such piece.
    The reason is Marian: the two sides of a model share their ids, and each side has pieces that only the SentencePiece
    model of the other side knows. A text never gives special tokens, even if the text spells their names:
    SentencePiece's control pieces and the ids in `special`, which add nothing to a text. Neither does an id without a
    piece, of the `size` ids that the translation model has.

    SentencePiece's own decoder differs from `Tokenizer.decode` in three cases:

    - A text begins with several spaces: SentencePiece drops all of them.
    - A text begins with the space of the unknown token or of a byte: SentencePiece keeps the space.
    - A character is broken: SentencePiece writes U+FFFD for each byte of the character.

    Vocabularies that mark spaces at the end of words are not supported. Vocabularies with rules for denormalization are
    not supported, either.
    """

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        size: int,
        *,
        unknown: int | None = None,
        ids: Mapping[str, int] | None = None,
        special: Collection[int] = (),
    ) -> None:
        self._processor = processor
        self.unknown: int = processor.unk_id() if unknown is None else unknown
        known = ids if ids is not None else {processor.id_to_piece(id_): id_ for id_ in range(len(processor))}
        self._pieces = {id_: piece for piece, id_ in known.items()}
        self._special = {*special, self.unknown}
        self._ids = None if ids is None else {piece: id_ for piece, id_ in ids.items() if self._is_text(piece, id_)}
        self._size = size

    @cached_property
    def surfaces(self) -> Sequence[bytes]:
        return tuple(self._surface(id_) for id_ in range(self._size))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        # One text per call: SentencePiece starts a thread for a list, which takes longer than encoding most texts.
        encode = self._processor.encode
        if self._ids is None:
            return [encode(text, out_type=int) for text in texts]
        ids, unknown = self._ids, self.unknown
        return [[ids.get(piece, unknown) for piece in encode(text, out_type=str)] for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """In a padded vocabulary, some ids have no piece."""
        return [self._pieces.get(id_, f"<{id_}>") for id_ in ids]

    def spans(self, text: str) -> list[str]:
        """The tokens of one character are its bytes, or the tokens of its normal form."""
        encoded = SentencePieceText.FromString(self._processor.encode(text, out_type="serialized_proto"))
        surfaces = [""]  # from the end of the text back to its start
        for token in reversed(encoded.pieces):  # SentencePiece gives a character to the last of its tokens
            shares = not token.surface and token.piece != _SPACE
            surfaces.append(surfaces[-1] if shares else token.surface)
        return surfaces[:0:-1]

    def _is_text(self, piece: str, id_: int) -> bool:
        return id_ not in self._special and not self._processor.is_control(self._processor.piece_to_id(piece))

    def _surface(self, id_: int) -> bytes:
        if id_ == self.unknown:
            return str(self._processor.decode([self._processor.unk_id()])).encode()
        piece = self._pieces.get(id_)
        if piece is None or not (piece in self._ids if self._ids is not None else self._is_text(piece, id_)):
            return b""
        if piece.startswith("<0x") and self._processor.is_byte(self._processor.piece_to_id(piece)):
            return bytes([int(piece[len("<0x") : -len(">")], 16)])
        return piece.replace(_SPACE, " ").encode()
