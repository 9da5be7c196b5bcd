"""How often texts are cut where their sentences end: paragraphs of sentences that are known, by language.

    python -m benchmarks.runs.splitting
    python -m benchmarks.runs.splitting --write    # into docs/server.md

Needs FLORES-200 and Tatoeba beside the repository (see benchmarks/places.py). A paragraph is two to six sentences in a
random order, with a space between two, which Chinese does not have. A boundary counts if the text is cut exactly there:
after the white space that follows a sentence. sentencex alone, the library under the splitter, is the peer.

Precision is the share of cuts that are boundaries, recall the share of boundaries that are cut, and F1 their harmonic
mean. Sentences without a sign at their end stay in: nobody can cut after them but by meaning. Lines of the data that
are several sentences themselves are left out, as `_SEVERAL` finds them: abbreviations and numbers with a dot do not
count.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import sentencex

from benchmarks.report.marked_part import write_part
from benchmarks.runs.language_id import DATA, PAGE, read_sets
from translane_server.text.halving import SplitLimits
from translane_server.text.splitting import split_text

COMMAND = "python -m benchmarks.runs.splitting --write"
SHORTEST, LONGEST = 2, 6  # sentences of a paragraph
_WITHOUT_SPACES = ("zh",)
_SEVERAL = re.compile(
    r"(?:[!?]|\b[a-zäöüß]{2,}\.|\b[A-ZÄÖÜ][a-zäöüß]{4,}\.)[\"'”“’»]*\s+[\"'“„‘«]?[A-ZÄÖÜ]|[。！？…][”’“」』）]*\s*[^\s”’“」』）。！？…]"
)

# Where a text is cut: the places of its characters [0, length].
Cutter = Callable[[str, str], set[int]]


class Paragraph(NamedTuple):
    """A text, and where its sentences end, after the white space that follows."""

    text: str
    ends: frozenset[int]


class Found(NamedTuple):
    """How many boundaries there are, how many cuts, and how many cuts are boundaries."""

    boundaries: int
    cuts: int
    right: int

    @property
    def precision(self) -> float:
        return self.right / self.cuts if self.cuts else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.boundaries if self.boundaries else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.boundaries + self.cuts
        return 2 * self.right / both if both else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--write", action="store_true", help="write the table into docs/server.md")
    arguments = parser.parse_args()
    if not (arguments.data / "flores200").is_dir():
        sys.exit(f"{arguments.data / 'flores200'} is not there")
    lines = table(read_sets(arguments.data))
    print(f"\n{lines}")
    if arguments.write:
        write_part(PAGE, "sentences found", COMMAND, lines)


def table(sets: dict[tuple[str, str], list[str]]) -> str:
    """The table of all data sets and languages."""
    lines = [
        "| sentences | language | paragraphs | precision | recall | F1 | sentencex alone: precision, recall, F1 |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (name, language), found in sets.items():
        sentences = [sentence for sentence in found if not _SEVERAL.search(sentence)]
        print(f"{name}, {language}: {len(found) - len(sentences):,} of {len(found):,} lines are left out")
        made = list(paragraphs(sentences, "" if language in _WITHOUT_SPACES else " "))
        began = time.perf_counter()
        ours = count(made, language, translane)
        passed = time.perf_counter() - began
        theirs = count(made, language, sentencex_alone)
        alone = ", ".join(f"{share:.1%}" for share in (theirs.precision, theirs.recall, theirs.f1))
        shares = " | ".join(f"{share:.1%}" for share in (ours.precision, ours.recall, ours.f1))
        lines.append(f"| {name} | {language} | {len(made):,} | {shares} | {alone} |")
        print(f"{name}, {language}: {passed / len(made) * 1e6:.0f} µs for a paragraph", flush=True)
    return "\n".join(lines)


def paragraphs(sentences: Sequence[str], space: str, seed: int = 1) -> Iterable[Paragraph]:
    """Yield paragraphs that have every sentence once, but for a last one that would be alone."""
    pick = random.Random(seed)
    left = [stripped for sentence in sentences if (stripped := sentence.strip())]
    pick.shuffle(left)
    while len(left) >= SHORTEST:
        chosen = [left.pop() for _ in range(min(pick.randint(SHORTEST, LONGEST), len(left)))]
        ends, length = set(), 0
        for sentence in chosen[:-1]:
            length += len(sentence) + len(space)
            ends.add(length)
        yield Paragraph(space.join(chosen), frozenset(ends))


def count(texts: Sequence[Paragraph], language: str, cut: Cutter) -> Found:
    """What a cutter finds in all texts together; the end of a text is no boundary."""
    boundaries = cuts = right = 0
    for text, ends in texts:
        found = cut(text, language) - {0, len(text)}
        boundaries, cuts, right = boundaries + len(ends), cuts + len(found), right + len(found & ends)
    return Found(boundaries, cuts, right)


def translane(text: str, language: str) -> set[int]:
    """Where a server cuts."""
    limits = SplitLimits(tokens=len(text) + 1, characters=len(text) + 1, sentences=len(text) + 1)
    spans = split_text(text, language, _encode, limits).spans
    return {start for start, _ in spans}


def sentencex_alone(text: str, language: str) -> set[int]:
    """Where sentencex cuts; white space after a sentence belongs to it."""
    found, place = set(), 0
    for part in sentencex.segment(language, text):
        place += len(part)
        found.add(place + len(text[place:]) - len(text[place:].lstrip()))
    return found


def _encode(spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    return [[0] for _ in spans]


if __name__ == "__main__":
    main()
