"""Parallel text of a few words, which a tiny model learns in seconds."""

import itertools
import random
from pathlib import Path

_NOUNS = {"猫": "cat", "狗": "dog", "书": "book", "马": "horse", "鸟": "bird", "鱼": "fish"}
_VERBS = {"看": "sees", "爱": "loves", "买": "buys", "找": "finds"}
_PEOPLE = {"他": "he", "她": "she", "你": "you", "我": "I"}
PAIRS = tuple(
    (f"{who}{does}{what}。", f"{_PEOPLE[who]} {_VERBS[does]} a {_NOUNS[what]}.")
    for who, does, what in itertools.product(_PEOPLE, _VERBS, _NOUNS)
)
"""Every sentence there is, and its translation."""


def write_pairs(path: Path, rows: int, seed: int) -> Path:
    """Write `rows` random pairs as TSV, with a third column that nobody reads."""
    lines = [f"{source}\t{target}\tattribution\n" for source, target in random.Random(seed).choices(PAIRS, k=rows)]
    path.write_text("".join(lines), encoding="utf-8")
    return path
