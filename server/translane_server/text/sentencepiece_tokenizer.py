"""A tokenizer with SentencePiece models, and the ids of the translation model or of SentencePiece."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import sentencepiece
from sentencepiece.sentencepiece_pb2 import SentencePieceText  # type: ignore[attr-defined]  # made at import

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how a piece spells a space


class SentencePieceVocabulary:
    """The pieces of one side: a SentencePiece model, and the ids of its pieces in the translation model.

    Without `ids`, a piece has SentencePiece's id. With `ids`, a piece that is missing in `ids` is unknown. A part of a
    text that is in `ids` has its id, even if the SentencePiece model has no such piece. The reason is Marian: the two
    sides of a model share their ids, and each side has pieces that only the SentencePiece model of the other side
    knows. A text never gives special tokens, even if the text spells their names.

    Args:
        processor: splits texts into pieces.
        size: how many ids the translation model has. An id without a piece adds nothing to a text.
        unknown: the id of the unknown token; None means SentencePiece's.
        ids: the id of each piece.
        special: ids that no text gives and that add nothing to a text, besides SentencePiece's control pieces.
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
        """What each id adds to a text, as UTF-8."""
        return tuple(self._surface(id_) for id_ in range(self._size))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        # One text per call: SentencePiece starts a thread for a list, which takes longer than encoding most texts.
        encode = self._processor.encode
        if self._ids is None:
            return [encode(text, out_type=int) for text in texts]
        ids, unknown = self._ids, self.unknown
        return [[ids.get(piece, unknown) for piece in encode(text, out_type=str)] for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the name of each token. In a padded vocabulary, some ids have no piece."""
        return [self._pieces.get(id_, f"<{id_}>") for id_ in ids]

    def spans(self, text: str) -> list[str]:
        """Return the part of `text` that each of its tokens stands for.

        If one character has several tokens, the character is the surface of each token. Such tokens are the bytes of
        the character, or the tokens of its normal form.
        """
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


class SentencePieceTokenizer:
    """Implements `Tokenizer` with SentencePiece (Kudo and Richardson 2018, https://aclanthology.org/D18-2012).

    A target text is its tokens' surfaces, concatenated, without the first space. U+FFFD stands for each part that is
    not UTF-8. SentencePiece's own decoder differs in three cases:

    - A text begins with several spaces: SentencePiece drops all of them.
    - A text begins with the space of the unknown token or of a byte: SentencePiece keeps the space.
    - A character is broken: SentencePiece writes U+FFFD for each byte of the character.

    Vocabularies that mark spaces at the end of words are not supported. Vocabularies with rules for denormalization are
    not supported, either.

    Args:
        source: the vocabulary of source texts.
        target: the vocabulary of target texts.
        eos: the end-of-sentence id at the end of sources; None if sources do not end with it.
    """

    def __init__(self, source: SentencePieceVocabulary, target: SentencePieceVocabulary, eos: int | None) -> None:
        self._source = source
        self._target = target
        self._end = [] if eos is None else [eos]

    @property
    def target_surfaces(self) -> Sequence[bytes]:
        return self._target.surfaces

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, *self._end] if ids else [] for ids in self._source.encode(texts)]

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        return self._target.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]] = ()) -> list[str]:
        return join_surfaces(self._target.surfaces, self._target.unknown, ids, unknowns)

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        return self._source.pieces(ids)

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        return self._target.pieces(ids)

    def source_surfaces(self, text: str) -> list[str]:
        """Tokens share a surface as in `SentencePieceVocabulary.spans`."""
        spans = self._source.spans(text)
        return [*spans, *("" for _ in self._end)] if spans else []


def join_surfaces(
    surfaces: Sequence[bytes], unknown: int, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]]
) -> list[str]:
    """Decode as `Tokenizer.decode` does, for tokens with these `surfaces`. `unknown` is the unknown token's id."""
    if not unknowns:
        return [_text([surfaces[token] for token in sentence]) for sentence in ids]
    return [
        _text(_replaced(surfaces, unknown, sentence, replaced))
        for sentence, replaced in zip(ids, unknowns, strict=True)
    ]


def _replaced(surfaces: Sequence[bytes], unknown: int, ids: Sequence[int], unknowns: Mapping[int, str]) -> list[bytes]:
    parts = [surfaces[token] for token in ids]
    for position, text in unknowns.items():
        assert ids[position] == unknown, "only unknown tokens are replaced"
        parts[position] = text.encode()
    return parts


def _text(parts: Sequence[bytes]) -> str:
    return b"".join(parts).removeprefix(b" ").decode(errors="replace")
