"""Turns texts into token ids, and token ids into texts."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import sentencepiece

from translane_server.bundle import manifest as entries
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import LanguageTemplates, SpecialIds
from translane_server.core.budget import Budget
from translane_server.core.errors import BundleError
from translane_server.core.files import parse_json, read_regular
from translane_server.text.characters import is_boundary
from translane_server.text.placeholders import Span
from translane_server.text.vocabularies import JsonVocabulary, SentencePieceVocabulary


class Vocabulary(Protocol):
    """The tokens of one side. All methods are safe to call from several threads at once."""

    unknown: int
    """The id of the unknown token."""

    @property
    def surfaces(self) -> Sequence[bytes]:
        """What each id adds to a text, as UTF-8; see `TargetVocabulary.surfaces`."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens as the vocabulary spells them."""

    def spans(self, text: str) -> list[Span | None]:
        """Return the part of `text` that each of its tokens stands for; None for a token that stands for none.

        If one character has several tokens, the character is the part of each.
        """


@dataclass(eq=False)
class Tokenizer:
    """Turns text into token ids and back. All methods are safe to call from several threads at once."""

    source: Vocabulary
    target: Vocabulary
    eos: int | None  # the id at the end of sources; None if sources have no such end
    skips_blank: bool = False  # whether a source of white space has no tokens, even if the vocabulary gives it some

    @property
    def target_surfaces(self) -> Sequence[bytes]:
        """What each target id adds to a text, as UTF-8; see `TargetVocabulary.surfaces`."""
        return self.target.surfaces

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the source ids of each text, with the end-of-sentence id; an empty list if a text has no tokens."""
        encoded = self.source.encode(texts)
        if self.skips_blank:
            encoded = [ids if text.strip() else [] for text, ids in zip(texts, encoded, strict=True)]
        if self.eos is not None:
            for ids in encoded:
                if ids:
                    ids.append(self.eos)
        return encoded

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the target ids of each text, without the end-of-sentence id."""
        return self.target.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]], replaced: Sequence[Mapping[int, str]] = ()) -> list[str]:
        """Return the target text of each list of ids. The lists hold no end-of-sentence id.

        A text is its tokens' surfaces, concatenated, without the first space. U+FFFD stands for each part that is not
        UTF-8. `replaced` has what is written in the place of some tokens of each list, by the token's position.
        """
        surfaces = self.target.surfaces
        parts = [[surfaces[token] for token in sentence] for sentence in ids]
        for of_sentence, changes in zip(parts, replaced, strict=True) if replaced else ():
            for position, text in changes.items():
                of_sentence[position] = text.encode()
        return [b"".join(each).removeprefix(b" ").decode(errors="replace") for each in parts]

    def stand_ins(self, symbols: Iterable[str]) -> dict[int, str]:
        """Return those of the symbols that both vocabularies have as one token, by their target ids."""
        found = {}
        for symbol in symbols:
            (source,), (target,) = self.source.encode([symbol]), self.target.encode([symbol])
            is_source = source and self.source.pieces(source[-1:])[0].endswith(symbol)
            if is_source and target and self.target.surfaces[target[-1]].strip() == symbol.encode():
                found[target[-1]] = symbol
        return found

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the source tokens as the vocabulary spells them."""
        return self.source.pieces(ids)

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the target tokens as the vocabulary spells them."""
        return self.target.pieces(ids)

    def source_spans(self, text: str) -> list[Span | None]:
        """Return the part of `text` that each token of `encode([text])` stands for; None for the sentence's end."""
        spans = [] if self.skips_blank and not text.strip() else self.source.spans(text)
        return [*spans, None] if spans and self.eos is not None else spans


# Texts that are tokenized at once, unless a single text is longer [characters]. They take some tenths of a second.
_PART = 65536

Encode = Callable[[Sequence[str]], list[list[int]]]


def tokenize(encode: Encode, texts: Sequence[str], budget: Budget) -> list[list[int]]:
    """Return the tokens of each text. The budget is checked before each part."""
    encoded: list[list[int]] = []
    while (start := len(encoded)) < len(texts):
        end, characters = start + 1, len(texts[start])
        while end < len(texts) and (characters := characters + len(texts[end])) <= _PART:
            end += 1
        budget.check()
        encoded += encode(texts[start:end])
    return encoded


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
    """Return the tokenizer of `bundle`. BundleError: the tokenizer's files do not match the manifest."""
    manifest, sizes = bundle.manifest, bundle.manifest.architecture
    ids = ModelIds(manifest.special_ids, sizes.source_vocab_size, sizes.target_vocab_size, manifest.language_templates)
    try:
        tokenizer = make_tokenizer(manifest.tokenizer, ids, lambda name: read_regular(bundle.path(name)))
        if lacking := set(manifest.stand_ins) - {*tokenizer.stand_ins(manifest.stand_ins).values()}:
            raise ValueError(f"stand_ins: {min(lacking)} is not one token of either vocabulary")
        return tokenizer
    except ValueError as error:
        raise BundleError(f"model bundle {bundle.folder}: {error}") from None


def make_tokenizer(
    entry: entries.SentencePieceTokenizerEntry | entries.JsonTokenizerEntry, ids: ModelIds, read: Callable[[str], bytes]
) -> Tokenizer:
    """Return the tokenizer that `entry` of a manifest describes. `read` returns the content of a file.

    Raises:
        ValueError: a file is wrong or cannot be read. The error names the file.
    """
    eos, sizes = ids.special.eos if entry.source_eos else None, (ids.source_vocab_size, ids.target_vocab_size)
    if isinstance(entry, entries.SentencePieceTokenizerEntry):
        source = target = _sentencepiece(entry.source, entry.source_ids, sizes[0], ids, read)
        if (entry.source, entry.source_ids, sizes[0]) != (entry.target, entry.target_ids, sizes[1]):
            target = _sentencepiece(entry.target, entry.target_ids, sizes[1], ids, read)
        return Tokenizer(source, target, eos)
    if entry.target is None:
        both = _json(entry.file, ids, read, size=sizes[1], embedded=min(sizes))
        return Tokenizer(both, both, eos, skips_blank=True)
    first = _json(entry.file, ids, read, size=sizes[0], embedded=sizes[0])
    second = _json(entry.target, ids, read, size=sizes[1], embedded=sizes[1])
    return Tokenizer(first, second, eos, skips_blank=True)


def _json(name: str, ids: ModelIds, read: Callable[[str], bytes], *, size: int, embedded: int) -> JsonVocabulary:
    """Read the tokenizer.json `name`, which may have ids below `embedded`, for a side of `size` ids."""
    content = _read(name, read)
    try:
        vocabulary = JsonVocabulary(content, size, unknown=ids.special.unk, special=ids.unwritten)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
    if vocabulary.largest_id >= embedded:
        raise ValueError(f"{name} has the id {vocabulary.largest_id}, and the model embeds {embedded}")
    return vocabulary


def _sentencepiece(
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
    text. So a delta ends neither within a character that readers see (see `characters`) nor in white space. It mostly
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

        `surfaces` is what the next tokens add to the text, as UTF-8; see `Vocabulary.surfaces`.
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
