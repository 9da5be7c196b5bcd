"""SentencePiece models as a tokenizer, with the model's ids or SentencePiece's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import sentencepiece
from sentencepiece.sentencepiece_pb2 import SentencePieceText  # type: ignore[attr-defined]  # made at import

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how a piece spells it


class SentencePieceVocabulary:
    """The pieces of one side: a SentencePiece model, and which ids they have in the translation model.

    Without `ids` they are SentencePiece's. With them a piece that is not there is unknown, while a part of a text that
    is no piece, but is there, is not: the two sides of a Marian model share their ids, and each has pieces that only
    the other's SentencePiece model knows. Special tokens are never made of a text, even where it spells their names.

    Args:
        processor: splits texts into pieces.
        size: how many ids the translation model has; those without a piece add nothing to a text.
        unknown: the id of what the model has no piece for; None is SentencePiece's.
        ids: by piece.
        special: ids that are never made of a text and add nothing to one. SentencePiece's control pieces are besides.
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
        """For each id the UTF-8 it adds to a text."""
        return tuple(self._surface(id_) for id_ in range(self._size))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text."""
        # one text a call: a list is given to a thread that is started for it, which takes longer than most texts do
        encode = self._processor.encode
        if self._ids is None:
            return [encode(text, out_type=int) for text in texts]
        ids, unknown = self._ids, self.unknown
        return [[ids.get(piece, unknown) for piece in encode(text, out_type=str)] for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The tokens' names; a padded vocabulary has ids without one."""
        return [self._pieces.get(id_, f"<{id_}>") for id_ in ids]

    def spans(self, text: str) -> list[str]:
        """For each token of `text` the part of it that it stands for.

        Where several tokens stand for one character, as bytes do and as the tokens of its normal form do, it is the
        surface of each.
        """
        encoded = SentencePieceText.FromString(self._processor.encode(text, out_type="serialized_proto"))
        surfaces = [""]  # of what follows the text; from here back to the start
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
    """Kudo and Richardson 2018, https://aclanthology.org/D18-2012.

    Target texts are the tokens' surfaces one after the other, less the first space, as UTF-8 with U+FFFD for each part
    that is none. That is what SentencePiece decodes to, but for texts that begin with more than one space (it drops
    them all), or with the unknown token's or a byte's (it keeps that one), and for broken characters (it writes U+FFFD
    for each of their bytes). Vocabularies that mark spaces at the end of words are not supported, nor are those with
    rules for denormalization.

    Args:
        source: of source texts.
        target: of target texts.
        eos: the end-of-sentence id, with which sources end; None where they do not.
    """

    def __init__(self, source: SentencePieceVocabulary, target: SentencePieceVocabulary, eos: int | None) -> None:
        self._source = source
        self._target = target
        self._end = [] if eos is None else [eos]

    @property
    def target_surfaces(self) -> Sequence[bytes]:
        """See `Tokenizer.target_surfaces`."""
        return self._target.surfaces

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.encode`."""
        return [[*ids, *self._end] if ids else [] for ids in self._source.encode(texts)]

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.encode_target`."""
        return self._target.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]] = ()) -> list[str]:
        """See `Tokenizer.decode`."""
        return join_surfaces(self._target.surfaces, self._target.unknown, ids, unknowns)

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer.source_pieces`."""
        return self._source.pieces(ids)

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer.target_pieces`."""
        return self._target.pieces(ids)

    def source_surfaces(self, text: str) -> list[str]:
        """See `Tokenizer.source_surfaces`; tokens share a surface as in `SentencePieceVocabulary.spans`."""
        spans = self._source.spans(text)
        return [*spans, *("" for _ in self._end)] if spans else []


def join_surfaces(
    surfaces: Sequence[bytes], unknown: int, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]]
) -> list[str]:
    """What `Tokenizer.decode` gives for tokens of these surfaces, of which `unknown` is the one that is replaced."""
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
