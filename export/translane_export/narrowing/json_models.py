"""A tokenizer.json with fewer pieces: see `sentencepiece_models`, whose rules hold here too.

https://huggingface.co/docs/tokenizers/api/models
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers

from translane_export.errors import ExportError
from translane_export.narrowing.merges import with_parts
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
