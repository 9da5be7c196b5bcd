"""Vocabulary shortlists: the few target tokens that a sentence's translation may consist of.

A shortlist maps n-grams of source tokens to target tokens, and has target tokens that every translation may use. The
list of a sentence is all of these together (L'Hostis et al. 2016, https://arxiv.org/abs/1610.00072; the same rule as
CTranslate2's vmap, https://opennmt.net/CTranslate2/decoding.html).

In shortlists of Marian's, a list is filled up to a multiple of eight tokens. The tokens that every translation may use
are then the first ones of the vocabulary, and those after them fill a list.

The file has eight bytes that name its format, of which the last is 8 where lists are filled, and then integers of 8
bytes, little-endian: four counts, the tokens that are always allowed, the n-grams as numbers, where the tokens of each
n-gram start, and the tokens of all n-grams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from translane_server.bundle.bundle import Bundle
from translane_server.core.arrays import IntArray
from translane_server.core.errors import BundleError
from translane_server.core.files import read_regular

SHORTLIST_FILE = "shortlist.dat"  # its name in a bundle
LONGEST_NGRAM = 8  # tokens
_LARGEST_KEY = (1 << 63) - 1
_MAGICS = {1: b"TLSHORT1", 8: b"TLSHORT8"}  # by what the number of a list's tokens is a multiple of
_MAGIC_BYTES = 8
_NUMBER = np.dtype("<i8")
_PARTS = 4
_HEADER = _MAGIC_BYTES + _PARTS * _NUMBER.itemsize


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The target tokens of n-grams of source tokens.

    An n-gram is a number in base `source_size` + 1 whose digits are its ids, plus 1.
    """

    source_size: int  # number of source ids
    always: IntArray  # tokens that every translation may use, ascending, [A]
    keys: IntArray  # the n-grams, ascending, [N]
    starts: IntArray  # where each n-gram's tokens start in `targets`, and the end, [N + 1]
    targets: IntArray  # the tokens of the n-grams, one n-gram after the other
    multiple: int = 1  # lists are filled with the tokens after `always`, to a multiple of so many
    target_size: int = 0  # number of target ids, if lists are filled

    @classmethod
    def of(cls, rules: Mapping[tuple[int, ...], Sequence[int]], always: Sequence[int], source_size: int) -> Shortlist:
        """Return a shortlist of rules: source n-gram -> target tokens. Raises ValueError if one is too long."""
        base = source_size + 1
        longest = max(map(len, rules), default=1)
        if longest > longest_ngram(source_size):
            raise ValueError(
                f"an n-gram has {longest} tokens, and at most {longest_ngram(source_size)} are possible with"
                f" {source_size:,} source tokens"
            )
        keyed = sorted(
            (sum((id_ + 1) * base**place for place, id_ in enumerate(reversed(ngram))), tokens)
            for ngram, tokens in rules.items()
        )
        lists = [np.unique(np.array(tokens, np.int64)) for _, tokens in keyed]
        return cls(
            source_size,
            np.unique(np.array(always, np.int64)),
            np.array([key for key, _ in keyed], np.int64),
            np.cumsum([0, *map(len, lists)], dtype=np.int64),
            np.concatenate([np.zeros(0, np.int64), *lists]),
        )

    @cached_property
    def order(self) -> int:
        """The number of tokens of the longest n-gram."""
        order, key = 1, int(self.keys[-1]) if len(self.keys) else 0
        while key := key // (self.source_size + 1):
            order += 1
        return order

    def tokens(self, source_ids: Sequence[int], more: Sequence[int] = ()) -> IntArray:
        """Return the list of a sentence: the tokens that its translation may use, `more` among them, ascending."""
        digits = np.array(source_ids, np.int64) + 1
        keys, found = digits, list[int]()
        for length in range(1, min(self.order, len(digits)) + 1):
            if length > 1:
                keys = keys[:-1] * (self.source_size + 1) + digits[length - 1 :]
            places = np.searchsorted(self.keys, keys)
            places[places == len(self.keys)] = 0
            if len(self.keys):
                found += np.unique(places[self.keys[places] == keys]).tolist()
        starts = self.starts
        lists = [self.targets[starts[place] : starts[place + 1]] for place in found]
        own = np.unique(np.concatenate([self.always, *lists]))
        if missing := -len(own) % self.multiple:
            first = len(self.always)
            candidates = np.arange(first, min(first + len(own) + missing, self.target_size))
            own = np.concatenate([own, np.setdiff1d(candidates, own)[:missing]])
        return np.unique(np.concatenate([own, np.array(more, np.int64)]))


def longest_ngram(source_size: int) -> int:
    """Return the number of tokens of the longest n-gram that is a number of 63 bits."""
    length = 1
    while length < LONGEST_NGRAM and (source_size + 1) ** (length + 1) <= _LARGEST_KEY:
        length += 1
    return length


def write_shortlist(shortlist: Shortlist, path: Path) -> None:
    """Write a shortlist to a new file. Raises OSError."""
    parts = (shortlist.always, shortlist.keys, shortlist.starts, shortlist.targets)
    numbers = np.concatenate([np.array([len(part) for part in parts]), *parts])
    with path.open("xb") as file:
        file.write(_MAGICS[shortlist.multiple] + numbers.astype(_NUMBER).tobytes())


def load_shortlist(bundle: Bundle) -> Shortlist:
    """Return the shortlist of a bundle that has one. Raises BundleError if the file is none of this model."""
    name, sizes = bundle.manifest.shortlist, bundle.manifest.architecture
    assert name is not None, "the bundle has no shortlist"
    try:
        return _read(read_regular(bundle.path(name)), sizes.source_vocab_size, sizes.target_vocab_size)
    except OSError as error:
        raise BundleError(f"model bundle {bundle.folder}: {name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BundleError(f"model bundle {bundle.folder}: {name} is no shortlist of this model: {error}") from None


def _read(content: bytes, source_size: int, target_size: int) -> Shortlist:
    multiple = next((each for each, magic in _MAGICS.items() if content.startswith(magic)), 0)
    if not multiple or len(content) % _NUMBER.itemsize or len(content) < _HEADER:
        raise ValueError("it does not start and end as a shortlist does")
    numbers: IntArray = np.frombuffer(content, _NUMBER)[1:]
    counts: list[int] = numbers[:_PARTS].tolist()
    if min(counts) < 0 or _PARTS + sum(counts) != len(numbers):
        raise ValueError("it has another size than it says")
    always, keys, starts, targets = np.split(numbers[_PARTS:], np.cumsum(counts)[:-1])
    if len(starts) != len(keys) + 1 or starts[0] != 0 or starts[-1] != len(targets) or (np.diff(starts) < 0).any():
        raise ValueError("its n-grams and their tokens do not match")
    if (np.diff(keys) <= 0).any() or (np.diff(always) <= 0).any() or (keys < 1).any():
        raise ValueError("its n-grams or tokens are not in order")
    for tokens in (always, targets):
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < target_size:
            raise ValueError(f"it has a token that is none of {target_size} target tokens")
    if not len(always):
        raise ValueError("it has no token that is always allowed")
    return Shortlist(source_size, always, keys, starts, targets, multiple, target_size)
