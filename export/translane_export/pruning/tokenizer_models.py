"""Models of tokenizers with fewer pieces, which split chosen texts as before and can still spell all others.

Every piece of one character stays, and so does a piece of characters that are no pieces themselves. So nothing becomes
unknown that was not. Bytes and symbols that users defined stay, too.
https://huggingface.co/docs/tokenizers/api/models
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from translane_export.core.errors import ExportError
from translane_server.core.files import parse_json
from translane_server.core.terminal import shown

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


class JsonModel:
    """A tokenizer.json, given by its content.

    Attributes:
        added: ids of the tokens that the file adds to the model's, which always stay unless they are left out by id.

    Raises:
        ExportError: its model is no BPE and no Unigram, or marks the starts or ends of words.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._description: dict[str, Any] = parse_json(content)
        self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        self._tokenizer.encode_special_tokens = True
        self._model: dict[str, Any] = self._description["model"]
        self._kind = self._model.get("type")
        if self._kind not in ("BPE", "Unigram"):
            raise ExportError(
                f"--vocabulary-from: {name} is a model of the kind {shown(self._kind)}, and only BPE and Unigram have"
                " smaller pieces that spell the dropped ones"
            )
        if self._model.get("continuing_subword_prefix") or self._model.get("end_of_word_suffix"):
            raise ExportError(f"--vocabulary-from: {name} marks the starts or ends of words, which is not supported")
        self.added = {token["id"] for token in self._description.get("added_tokens") or []}
        self._used: set[int] = set()

    def use(self, texts: Iterable[str]) -> None:
        """Keep the pieces of these texts."""
        for text in texts:
            self._used.update(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def kept(self) -> set[int]:
        """The ids that stay, added tokens among them."""
        ids = self._ids()
        characters = {piece for piece in ids if len(piece) == 1}
        kept = {
            piece
            for piece, id_ in ids.items()
            if id_ in self._used or not characters.issuperset(piece) or piece in characters or _BYTE.fullmatch(piece)
        }
        if self._kind == "BPE":
            order = {pair: place for place, pair in enumerate(self._merges())}
            kept = with_parts(kept, lambda one, other: order.get((one, other))) & ids.keys()
        unknown = self._model.get("unk_id")
        return {ids[piece] for piece in kept} | self.added | ({unknown} if unknown is not None else set())

    def smaller(self, numbers: Mapping[int, int]) -> bytes:
        """The content of the file with the old ids of `numbers`, which get the new ones.

        The new ids of the model's pieces have to be the first ones, in the order of the old ids.
        """
        model = dict(self._model)
        if self._kind == "Unigram":
            model["vocab"] = [entry for id_, entry in enumerate(self._model["vocab"]) if id_ in numbers]
            unknown = self._model.get("unk_id")
            model["unk_id"] = None if unknown is None else numbers[unknown]
        else:
            model["vocab"] = {piece: numbers[id_] for piece, id_ in self._ids().items() if id_ in numbers}
            model["merges"] = [
                [one, other] for one, other in self._merges() if {one, other, one + other} <= model["vocab"].keys()
            ]
        added = [
            {**token, "id": numbers[token["id"]]}
            for token in self._description.get("added_tokens") or []
            if token["id"] in numbers
        ]
        # the server does not ask for the template, whose ids would be old ones
        content = {**self._description, "model": model, "added_tokens": added, "post_processor": None}
        return json.dumps(content, ensure_ascii=False).encode()

    def _ids(self) -> dict[str, int]:
        """The ids of the model's pieces, without those of added tokens that the model lacks."""
        if self._kind == "Unigram":
            return {entry[0]: id_ for id_, entry in enumerate(self._model["vocab"])}
        return dict(self._model["vocab"])

    def _merges(self) -> list[tuple[str, str]]:
        """The merges in their order; older files have both parts in one string."""
        pairs = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in self._model["merges"])
        return [(one, other) for one, other in pairs]


Rank = Callable[[str, str], float | None]
"""How early two neighbours are merged: the lowest first; None where they are not merged."""


def with_parts(pieces: Iterable[str], rank: Rank) -> set[str]:
    """Return `pieces` and what BPE merges them from (Sennrich et al. 2016, https://aclanthology.org/P16-1162).

    BPE merges neighbours, the best pair first, and never takes a merge back. So a piece of a text was merged from its
    characters as it would be alone, and a vocabulary that has the piece and all of its parts makes the same piece of
    the same text. Any other piece may go: the merges that made the pieces of a text are still the best where they were.
    """
    found: set[str] = set()
    for piece in pieces:
        found.add(piece)
        found.update(_parts(piece, rank))
    return found


def _parts(piece: str, rank: Rank) -> Iterable[str]:
    symbols = list(piece)
    yield from symbols
    while len(symbols) > 1:
        ranks = [rank(one, other) for one, other in itertools.pairwise(symbols)]
        possible = [(place_rank, place) for place, place_rank in enumerate(ranks) if place_rank is not None]
        if not possible:
            return
        _, place = min(possible)
        symbols[place : place + 2] = ["".join(symbols[place : place + 2])]
        yield symbols[place]


_NORMAL = sentencepiece_model_pb2.ModelProto.SentencePiece.NORMAL
_BPE = sentencepiece_model_pb2.TrainerSpec.BPE
_WORD = sentencepiece_model_pb2.TrainerSpec.WORD


class SentencePieceModel:
    """A SentencePiece model, given by the content of its file.

    The model that is pruned has ids for the pieces ``known``; None means all.

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
