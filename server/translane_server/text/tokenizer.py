"""Turns texts into token ids, and token ids into texts."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import sentencepiece

from translane_server.bundle import manifest as entries
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import LanguageTemplates, SpecialIds
from translane_server.core.errors import BundleError
from translane_server.core.files import parse_json, read_regular
from translane_server.text.characters import is_boundary
from translane_server.text.json_tokenizer import JsonTokenizer
from translane_server.text.sentencepiece_tokenizer import SentencePieceTokenizer, SentencePieceVocabulary


class Tokenizer(Protocol):
    """Turns text into token ids and back. All methods are safe to call from several threads at once."""

    @property
    def target_surfaces(self) -> Sequence[bytes]:
        """What each target id adds to a text, as UTF-8; see `TargetVocabulary.surfaces`."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the source ids of each text, with the end-of-sentence id; an empty list if a text has no tokens."""

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the target ids of each text, without the end-of-sentence id."""

    def decode(self, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]] = ()) -> list[str]:
        """Return the target text of each list of ids. The lists hold no end-of-sentence id.

        `unknowns` has the replacements of unknown tokens for each list, by the token's position.
        """

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the source tokens as the vocabulary spells them."""

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the target tokens as the vocabulary spells them."""

    def source_surfaces(self, text: str) -> list[str]:
        """Return the part of `text` that each token of `encode([text])` stands for; "" for the end of the sentence."""


@dataclass(frozen=True)
class TwoTokenizers:
    """Implements `Tokenizer` with a tokenizer for each side."""

    source: Tokenizer
    target: Tokenizer

    @property
    def target_surfaces(self) -> Sequence[bytes]:
        return self.target.target_surfaces

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self.source.encode(texts)

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        return self.target.encode_target(texts)

    def decode(self, ids: Sequence[Sequence[int]], unknowns: Sequence[Mapping[int, str]] = ()) -> list[str]:
        return self.target.decode(ids, unknowns)

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        return self.source.source_pieces(ids)

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        return self.target.target_pieces(ids)

    def source_surfaces(self, text: str) -> list[str]:
        return self.source.source_surfaces(text)


@dataclass(frozen=True)
class ModelIds:
    """What a tokenizer needs to know about the translation model."""

    special: SpecialIds
    source_vocab_size: int
    target_vocab_size: int
    templates: LanguageTemplates = field(default_factory=LanguageTemplates)

    @property
    def unwritten(self) -> set[int]:
        """Ids that no text has: the ids of special tokens and of languages."""
        ids = self.special
        languages = [*self.templates.source.values(), *self.templates.target.values()]
        return {ids.pad, ids.bos, ids.eos, ids.decoder_start} | {
            id_ for tokens in languages for id_ in (*tokens.source_prefix, *tokens.source_suffix, *tokens.forced)
        }


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """Return the tokenizer of `bundle`.

    Raises:
        BundleError: the tokenizer's files do not match the manifest.
    """
    manifest, sizes = bundle.manifest, bundle.manifest.architecture
    ids = ModelIds(manifest.special_ids, sizes.source_vocab_size, sizes.target_vocab_size, manifest.language_templates)
    try:
        return make_tokenizer(manifest.tokenizer, ids, lambda name: read_regular(bundle.path(name)))
    except ValueError as error:
        raise BundleError(f"model bundle {bundle.folder}: {error}") from None


def make_tokenizer(
    entry: entries.SentencePieceTokenizerEntry | entries.JsonTokenizerEntry, ids: ModelIds, read: Callable[[str], bytes]
) -> Tokenizer:
    """Return the tokenizer that `entry` of a manifest describes.

    Args:
        entry: names the tokenizer's files.
        ids: ids of the translation model.
        read: returns the content of a file.

    Raises:
        ValueError: a file is wrong or cannot be read. The error names the file.
    """
    eos = ids.special.eos if entry.source_eos else None
    if isinstance(entry, entries.SentencePieceTokenizerEntry):
        source = _vocabulary(entry.source, entry.source_ids, ids.source_vocab_size, ids, read)
        joint = (entry.source, entry.source_ids, ids.source_vocab_size)
        if joint == (entry.target, entry.target_ids, ids.target_vocab_size):
            return SentencePieceTokenizer(source, source, eos)
        target = _vocabulary(entry.target, entry.target_ids, ids.target_vocab_size, ids, read)
        return SentencePieceTokenizer(source, target, eos)
    sizes = (ids.source_vocab_size, ids.target_vocab_size)
    if entry.target is None:
        return _json_tokenizer(entry.file, ids, eos, read, size=ids.target_vocab_size, embedded=min(sizes))
    return TwoTokenizers(
        source=_json_tokenizer(entry.file, ids, eos, read, size=sizes[0], embedded=sizes[0]),
        target=_json_tokenizer(entry.target, ids, eos, read, size=sizes[1], embedded=sizes[1]),
    )


def _json_tokenizer(
    name: str, ids: ModelIds, eos: int | None, read: Callable[[str], bytes], *, size: int, embedded: int
) -> JsonTokenizer:
    """Read the tokenizer.json `name`, which may have ids below `embedded`, for a side of `size` ids."""
    content = _read(name, read)
    try:
        tokenizer = JsonTokenizer(content, size, unknown=ids.special.unk, eos=eos, special=ids.unwritten)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
    if tokenizer.largest_id >= embedded:
        raise ValueError(f"{name} has the id {tokenizer.largest_id}, and the model embeds {embedded}")
    return tokenizer


def _vocabulary(
    name: str, ids_name: str | None, size: int, model: ModelIds, read: Callable[[str], bytes]
) -> SentencePieceVocabulary:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(_read(name, read))
        for number in range(len(processor)):  # pieces are UTF-8
            processor.id_to_piece(number)
    except (RuntimeError, UnicodeDecodeError):
        raise ValueError(f"{name} is not a SentencePiece model") from None
    if ids_name is None:
        if len(processor) > size:
            raise ValueError(f"{name} has {len(processor)} pieces, and the model embeds {size}")
        return SentencePieceVocabulary(processor, size)
    ids = _piece_ids(ids_name, _read(ids_name, read))
    if (largest := max(ids.values(), default=0)) >= size:
        raise ValueError(f"{ids_name} has the id {largest}, and the model embeds {size}")
    return SentencePieceVocabulary(processor, size, unknown=model.special.unk, ids=ids, special=model.unwritten)


def _piece_ids(name: str, content: bytes) -> dict[str, int]:
    try:
        ids = parse_json(content)
    except ValueError:
        ids = None
    if not isinstance(ids, dict) or not all(type(id_) is int and id_ >= 0 for id_ in ids.values()):
        raise ValueError(f"{name} is not a JSON object of ids by piece")
    return ids


def _read(name: str, read: Callable[[str], bytes]) -> bytes:
    try:
        return read(name)
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from None


_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns the surfaces of one translation's tokens into deltas, which concatenate to the translation's text.

    A delta is sent when the token after it is known, because the next token may still change the delta. The next token
    may complete a character of several bytes (byte fallback), add an accent, or show that a space is not the end of the
    text. So a delta ends neither within a character that readers see (see `graphemes`) nor in white space. It mostly
    ends where a token ends. `finish` sends the rest.

    Each token is read once, so the time for a translation is proportional to its length.
    """

    def __init__(self) -> None:
        self._decoder = _Utf8Decoder("replace")
        self._unsent = ""  # begins at the start of a character
        self._searched = 0  # no delta can end at this place of the unsent text, or before it
        self._sent = 0  # characters
        self._is_empty = True

    def push(self, surfaces: Sequence[bytes]) -> str:
        """Return the delta that can be sent now; it may be empty.

        Args:
            surfaces: what the next tokens add to the text, as UTF-8; see `TargetVocabulary.surfaces`.
        """
        limit = len(self._unsent)
        for surface in surfaces:
            if self._is_empty and surface:
                surface, self._is_empty = surface.removeprefix(b" "), False  # the text leaves out the first space
            limit = len(self._unsent)
            self._unsent += self._decoder.decode(surface)
        end = self._last_end(min(limit, len(self._unsent) - 1))
        delta, self._unsent = self._unsent[:end], self._unsent[end:]
        self._sent += end
        return delta

    def finish(self, text: str) -> str:
        """Return the unsent rest of the whole translation `text`."""
        return text[self._sent :]

    def _last_end(self, limit: int) -> int:
        """Return the last place up to `limit` where a character ends that is not white space; 0 if there is none.

        Whether a character ends at a place depends on the text up to there and on one character more. So the places
        that were searched once are not searched again.
        """
        text, place = self._unsent, limit
        while place > self._searched and (text[place - 1].isspace() or not is_boundary(text, place)):
            place -= 1
        found = place if place > self._searched else 0
        self._searched = 0 if found else max(limit, self._searched)
        return found
