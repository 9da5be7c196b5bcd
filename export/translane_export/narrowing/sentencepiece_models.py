"""A SentencePiece model with fewer pieces, which splits chosen texts as before and can still spell all others.

Every piece of one character stays, and so does a piece of characters that are no pieces themselves. So nothing becomes
unknown that was not. Bytes and symbols that users defined stay, too. https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from translane_export.errors import ExportError
from translane_export.narrowing.merges import Rank, with_parts

_NORMAL = sentencepiece_model_pb2.ModelProto.SentencePiece.NORMAL
_BPE = sentencepiece_model_pb2.TrainerSpec.BPE
_WORD = sentencepiece_model_pb2.TrainerSpec.WORD


class SentencePieceModel:
    """A SentencePiece model, given by the content of its file.

    Args:
        content: of the file.
        name: its name, for errors.
        known: the pieces that the translation model has an id for; None means all.

    Attributes:
        places: SentencePiece's own ids by piece.
        names: the pieces.

    Raises:
        ExportError: its pieces are whole words, which no smaller pieces can spell.
    """

    def __init__(self, content: bytes, name: str, known: Collection[str] | None = None) -> None:
        self._model = sentencepiece_model_pb2.ModelProto.FromString(content)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        if self._model.trainer_spec.model_type == _WORD:
            raise ExportError(f"--vocabulary-from: the pieces of {name} are words, which no smaller pieces could spell")
        self.places = {piece.piece: place for place, piece in enumerate(self._model.pieces)}
        self.names = self.places.keys()
        characters = {name for name in self.names if len(name) == 1 and (known is None or name in known)}
        self._kept = {
            piece.piece
            for piece in self._model.pieces
            if piece.type != _NORMAL or len(piece.piece) == 1 or not characters.issuperset(piece.piece)
        }

    def use(self, texts: Iterable[str]) -> None:
        """Keep the pieces of these texts."""
        encode = self._processor.encode
        for text in texts:
            self._kept.update(encode(text, out_type=str))

    def kept(self) -> set[str]:
        """The pieces that stay."""
        kept = self._kept & self.names
        return with_parts(kept, self._rank()) & self.names if self._model.trainer_spec.model_type == _BPE else kept

    def smaller(self, kept: set[str]) -> bytes:
        """The content of the model's file, with the pieces `kept`."""
        made = sentencepiece_model_pb2.ModelProto()
        made.CopyFrom(self._model)
        del made.pieces[:]
        made.pieces.extend(piece for piece in self._model.pieces if piece.piece in kept)
        made.trainer_spec.vocab_size = len(made.pieces)
        made.DiscardUnknownFields()  # a test of the model on pieces that may be gone
        content: bytes = made.SerializeToString()
        return content

    def _rank(self) -> Rank:
        scores: dict[str, float] = {piece.piece: -piece.score for piece in self._model.pieces}
        return lambda one, other: scores.get(one + other)
