"""Vocabularies: a SentencePiece model with the ids of the translation model or its own, and a tokenizer.json.

The library tokenizers reads the latter: https://huggingface.co/docs/tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sentencepiece

from translane_server.core.files import parse_json
from translane_server.core.terminal import printable, shown
from translane_server.text.placeholders import Span

if TYPE_CHECKING:
    import tokenizers

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
        self._controls = {processor.id_to_piece(id_) for id_ in range(len(processor)) if processor.is_control(id_)}
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

    def spans(self, text: str) -> list[Span | None]:
        """The tokens of one character are its bytes, or the tokens of its normal form."""
        encoded = self._processor.encode(text, out_type="offset_mapping")
        spans: list[Span | None] = []  # from the end of the text back to its start
        last: Span | None = None
        for piece, (start, end) in zip(reversed(encoded["pieces"]), reversed(encoded["offsets"]), strict=True):
            if start < end:
                last = start, end
            elif piece == _SPACE:
                last = None
            # Else the token shares its character with the next one: SentencePiece gives it to the last of its tokens.
            spans.append(last)
        return spans[::-1]

    def _is_text(self, piece: str, id_: int) -> bool:
        return id_ not in self._special and piece not in self._controls

    def _surface(self, id_: int) -> bytes:
        if id_ == self.unknown:
            return str(self._processor.decode([self._processor.unk_id()])).encode()
        piece = self._pieces.get(id_)
        if piece is None or not (piece in self._ids if self._ids is not None else self._is_text(piece, id_)):
            return b""
        if piece.startswith("<0x") and self._processor.is_byte(self._processor.piece_to_id(piece)):
            return bytes([int(piece[len("<0x") : -len(">")], 16)])
        return piece.replace(_SPACE, " ").encode()


_UNKNOWN = " \N{DOUBLE QUESTION MARK} "  # what SentencePiece writes for the unknown token
_UNKNOWN_WORD = _UNKNOWN.rstrip()  # the next word has a space of its own
_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
_MOST_OF_A_REASON = 200  # characters; the library may quote half a file
_RUST_PANIC = "PanicException"  # pyo3's, which no module exports


def is_of_tokenizers(error: BaseException) -> bool:
    """Whether the library raises `error` for a wrong file: it has no error of its own, and some checks are Rust's."""
    return isinstance(error, Exception) or type(error).__name__ == _RUST_PANIC


class JsonVocabulary:
    """Implements `Vocabulary` with a tokenizer.json, without the tokens that it puts around texts.

    A text never gives special tokens: those of the file, and the ids in `special`. The name of a special token is plain
    text. If the library finds the name in the vocabulary all the same, the name is unknown. Special tokens add nothing
    to a text, except for the unknown token. The translation model has `size` ids.

    The library's own decoder differs from `Tokenizer.decode`: it keeps the first space if tokens are bytes, and
    otherwise drops every space of the first token. A vocabulary of words (WordLevel) without a decoder has a space
    before each word.

    Raises:
        ValueError: the library cannot read the file, or the file's decoder is not supported.
    """

    def __init__(self, content: bytes, size: int, *, unknown: int, special: Collection[int] = ()) -> None:
        import tokenizers  # late: most models have SentencePiece's vocabularies

        try:
            description = parse_json(content)
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except BaseException as error:
            if not is_of_tokenizers(error):
                raise
            raise ValueError(f"is not a tokenizer.json: {printable(str(error), _MOST_OF_A_REASON)}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self._pieces: dict[int, str] = {
            id_: piece for piece, id_ in self._tokenizer.get_vocab(with_added_tokens=True).items()
        }
        self.unknown = unknown
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {*special, *(id_ for id_, token in added.items() if token.special)} - {unknown}
        try:
            is_of_words = description["model"].get("type") == "WordLevel"
            surface, surface_of_unknown = _spelling(description.get("decoder"), words=is_of_words)
        except (TypeError, LookupError, AttributeError):  # the library reads lists in place of objects, too
            raise ValueError("has a decoder that is not supported") from None
        self.surfaces: Sequence[bytes] = tuple(
            surface_of_unknown.encode()
            if id_ == unknown
            else b""
            if id_ in self._special or id_ not in self._pieces
            else self._pieces[id_].encode()
            if id_ in added
            else surface(self._pieces[id_])
            for id_ in range(size)
        )

    @property
    def largest_id(self) -> int:
        """The largest id of a text's tokens. Special ids may be larger than the model's: bart-large-cnn has no mask."""
        return max(self._pieces.keys() - self._special, default=0)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._ids(text) for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces.get(id_, f"<{id_}>") for id_ in ids]

    def spans(self, text: str) -> list[Span | None]:
        return [(start, end) if start < end else None for start, end in self._encode(text).offsets]

    def _ids(self, text: str) -> list[int]:
        ids = self._encode(text).ids
        return ids if self._special.isdisjoint(ids) else [self.unknown if id_ in self._special else id_ for id_ in ids]

    def _encode(self, text: str) -> tokenizers.Encoding:
        # One text per call: the library encodes several texts on all cores of the host, even if fewer are granted.
        return self._tokenizer.encode(text, add_special_tokens=False)


def _spelling(decoder: Mapping[str, Any] | None, *, words: bool) -> tuple[Callable[[str], bytes], str]:
    """Return what a token adds to a text, by the decoder in tokenizer.json, and what the unknown token adds.

    A vocabulary of whole `words` needs no decoder: then the words of a text are joined by spaces.
    """
    if words and decoder is None:
        return lambda piece: f" {piece}".encode(), _UNKNOWN_WORD
    space, bytes_of, has_byte_tokens = "", dict[str, int](), False
    for step in _steps(decoder):
        match step["type"]:
            case "ByteLevel":
                bytes_of = _byte_characters()
            case "Metaspace":
                space = step["replacement"]
            case "Replace" if step["content"] == " " and "String" in step["pattern"]:
                space = step["pattern"]["String"]
            case "ByteFallback":
                has_byte_tokens = True
            case "Fuse" | "Strip":
                pass
            case kind:
                raise ValueError(f"has a decoder that is not supported, {shown(kind)}")
    if not bytes_of and not space:
        raise ValueError("has no decoder that is supported: ByteLevel, Metaspace, or Replace of its mark of spaces")

    def surface(piece: str) -> bytes:
        if bytes_of:
            return b"".join(bytes([bytes_of[each]]) if each in bytes_of else each.encode() for each in piece)
        if has_byte_tokens and (byte := _BYTE_TOKEN.fullmatch(piece)):
            return bytes.fromhex(byte[1])
        return piece.replace(space, " ").encode()

    return surface, _UNKNOWN


def _steps(decoder: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if decoder and decoder["type"] == "Sequence":
        for step in decoder["decoders"]:
            yield from _steps(step)
    elif decoder:
        yield decoder


def _byte_characters() -> dict[str, int]:
    """Return the byte that each character stands for in the vocabulary of a byte-level BPE.

    Printable bytes are spelled as themselves, and all other bytes as characters from U+0100 on (Radford et al. 2019,
    GPT-2).
    """
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = sorted(set(range(256)) - set(printed))
    return {chr(byte): byte for byte in printed} | {chr(256 + place): byte for place, byte in enumerate(hidden)}
