"""Reads and writes shortlists as text: CTranslate2's vmap (https://opennmt.net/CTranslate2/decoding.html).

A line is a source n-gram, a tab, and the target tokens of the n-gram. Tokens are separated by single spaces. The tokens
after an empty n-gram are always allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from translane_export.core.errors import ExportError
from translane_server.bundle.shortlist import Shortlist, longest_ngram
from translane_server.core.files import open_regular

_LONGEST_LINE = 1 << 20  # bytes
_MOST_TOKENS = 100_000_000  # of all lines
_FEW = 4  # unknown tokens that a message names

Ids = Mapping[str, int]


class ReadShortlist(NamedTuple):
    """A shortlist, and how many rules of its file name tokens that the model does not know."""

    shortlist: Shortlist
    left_out: int


def read_vmap(path: Path, source: Ids, target: Ids, source_size: int) -> ReadShortlist:
    """Return the shortlist of a file, for a model whose tokens have these ids.

    A rule for a source token that the model does not know never applies, and is left out. An unknown target token is
    left out of its rule.

    Raises:
        ExportError: the file cannot be read, a line has no tab or is too long, or no rule fits the model.
    """
    rules: dict[tuple[int, ...], list[int]] = {}
    always: list[int] = []
    left_out = tokens = 0
    longest = longest_ngram(source_size)
    for number, line in enumerate(_lines(path), start=1):
        ngram, tab, targets = line.partition("\t")
        if not tab:
            raise ExportError(f"--shortlist {path}:{number}: the line has no tab between an n-gram and its tokens")
        names = targets.split(" ") if targets else []
        ids = [target[name] for name in names if name in target]
        tokens += len(names)
        if tokens > _MOST_TOKENS:
            raise ExportError(f"--shortlist {path}:{number}: there are more than {_MOST_TOKENS:,} target tokens")
        words = ngram.split(" ") if ngram else []
        if len(words) > longest:
            raise ExportError(
                f"--shortlist {path}:{number}: the n-gram has {len(words)} tokens, and at most {longest} are possible"
            )
        left_out += len(ids) < len(names) or not all(word in source for word in words)
        if not words:
            always += ids
        elif ids and all(word in source for word in words):
            rules.setdefault(tuple(source[word] for word in words), []).extend(ids)
    if not rules:
        raise ExportError(f"--shortlist {path}: no rule has a source token of this model; is it of another vocabulary?")
    if not always:
        raise ExportError(
            f"--shortlist {path}: no line has tokens that are always allowed: an empty n-gram, a tab, tokens"
        )
    return ReadShortlist(Shortlist.of(rules, always, source_size), left_out)


def vmap_lines(rules: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Iterator[str]:
    """Return the lines of a file: one for each rule, a source n-gram and its target tokens."""
    for ngram, targets in rules:
        yield f"{' '.join(ngram)}\t{' '.join(targets)}\n"


def _lines(path: Path) -> Iterator[str]:
    try:
        with open_regular(path) as file:
            number = 0
            while line := file.readline(_LONGEST_LINE + 1):
                number += 1
                if len(line) > _LONGEST_LINE:
                    raise ExportError(f"--shortlist {path}:{number}: the line has more than {_LONGEST_LINE:,} bytes")
                yield line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ExportError(f"--shortlist {path}: it is not UTF-8 text") from None
    except OSError as error:
        raise ExportError(f"--shortlist {path}: it cannot be read: {error.strerror}") from None
