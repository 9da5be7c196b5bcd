"""Reads pretrained word vectors in word2vec's text format into an embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

WORD_START = "▁"  # how SentencePiece marks a piece that begins a word


def load_word_vectors(
    path: str | Path, embedding: nn.Embedding, pieces: Sequence[str], *, standard_deviation: float | None = None
) -> int:
    """Set the rows of ``embedding`` [V, M] whose piece is a word of the file; return how many rows that was.

    ``pieces[i]`` is the text of row i. A piece matches the word of the same text or else, when it begins a word
    ("▁cat"), the word without the mark ("cat"). Of a word that comes twice the first vector counts. The padding row
    stays as it is.

    ``standard_deviation`` multiplies all vectors by one factor so that their entries deviate by this much; M ** -0.5
    is what the Transformer's own rows start with, and pretrained vectors are often several times larger.

    Format: a header line "COUNT M", then COUNT lines "WORD NUMBER…", UTF-8. Raises ValueError naming file and line
    for anything else, in which case the embedding is unchanged.
    """
    if len(pieces) > embedding.num_embeddings:
        raise ValueError(f"{len(pieces)} pieces do not fit an embedding of {embedding.num_embeddings} rows")
    wanted = {word for piece in pieces for word in _words_of(piece)}
    vector_of_word = _read(Path(path), embedding.embedding_dim, wanted)

    vector_of_row: dict[int, list[float]] = {}
    for row, piece in enumerate(pieces):
        word = next((word for word in _words_of(piece) if word in vector_of_word), None)
        if word is not None and row != embedding.padding_idx:
            vector_of_row[row] = vector_of_word[word]
    if not vector_of_row:
        return 0

    vectors = torch.tensor(list(vector_of_row.values()), dtype=torch.float64)  # [matched, M]
    if standard_deviation is not None:
        vectors *= standard_deviation / vectors.std(correction=0).clamp(min=1e-12)
    with torch.no_grad():
        embedding.weight[torch.tensor(list(vector_of_row))] = vectors.to(embedding.weight)
    return len(vector_of_row)


def _words_of(piece: str) -> tuple[str, ...]:
    """Return the words a piece may stand for, best first."""
    bare = piece.removeprefix(WORD_START)
    return (piece,) if bare in ("", piece) else (piece, bare)


def _read(path: Path, size: int, wanted: set[str]) -> dict[str, list[float]]:
    """Check every line of the file and return the vectors of the wanted words."""
    vectors: dict[str, list[float]] = {}
    with path.open("rb") as lines:  # bytes: only \n ends a line, and a bad byte is reported with its line
        count = _parse_header(lines.readline(), size, f"{path}:1")
        number = 1
        for number, line in enumerate(lines, start=2):
            if number > count + 1:
                raise ValueError(f"{path}:{number}: the header promises only {count} words")
            word, vector = _parse_line(line, size, f"{path}:{number}")
            if word in wanted:
                vectors.setdefault(word, vector)
    if number < count + 1:
        raise ValueError(f"{path}:{number}: the file ends after {number - 1} of {count} words")
    return vectors


def _parse_header(line: bytes, size: int, place: str) -> int:
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise ValueError(f"{place}: not a word2vec header, which is the count of words and the vector size")
    count, file_size = int(fields[0]), int(fields[1])
    if file_size != size:
        raise ValueError(f"{place}: vectors of size {file_size} do not fit an embedding of size {size}")
    return count


def _parse_line(line: bytes, size: int, place: str) -> tuple[str, list[float]]:
    try:
        word, *numbers = line.decode().rstrip(" \r\n").split(" ")
    except UnicodeDecodeError as error:
        raise ValueError(f"{place}: not UTF-8: {error.reason}") from error
    if len(numbers) != size:
        raise ValueError(f"{place}: {len(numbers)} numbers where the header promises {size}")
    try:
        vector = [float(number) for number in numbers]
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    if not all(math.isfinite(number) for number in vector):
        raise ValueError(f"{place}: a number that is not finite")
    return word, vector
