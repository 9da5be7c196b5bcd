"""Writes variations of sources: more sentences for a teacher to translate, where there is little text.

    python -m benchmarks.runs.varied_sources train.tsv.gz -o varied.txt --count 80000 --without valid.tsv.gz test.tsv.gz

A variation is a source in which one or two pieces are swapped for pieces that occur between the same neighbours
somewhere in the text. Many variations mean little, but the teacher's translation of them still shows what it does. No
variation is a source of the text itself, or of the files of `--without`.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import sentencepiece

from benchmarks.models.workload import read_texts
from benchmarks.places import DEMO

START, END = "<s>", "</s>"
SHORTEST = 3  # pieces of a source that is varied
SWAPS = (1, 1, 2)  # one of these is drawn for each variation
TRIES = 20  # for each variation that is asked for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a file with a source on each line, which a tab may end")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=80_000)
    parser.add_argument("--vocabulary", type=Path, default=DEMO / "source.spm", help="of the teacher's sources")
    parser.add_argument("--without", type=Path, nargs="*", default=[], help="files whose sources must not occur")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(arguments.vocabulary))
    sources = list(dict.fromkeys(text.strip() for text in read_texts(arguments.text)))
    cut = pieces.encode(sources, out_type=str)
    held_out = [text for path in arguments.without for text in read_texts(path)]
    known = {pieces.decode(ids) for ids in pieces.encode(sources + held_out)}
    found = variations(cut, pieces.decode_pieces, known, arguments.count, random.Random(arguments.seed))
    arguments.output.write_text("".join(f"{text}\n" for text in found), encoding="utf-8")


def variations(
    sources: Sequence[Sequence[str]],
    join: Callable[[list[str]], str],
    known: Collection[str],
    count: int,
    pick: random.Random,
) -> Iterator[str]:
    """Return up to `count` different variations.

    Args:
        sources: the pieces of each source.
        join: makes a text of pieces.
        known: texts that are no variations.
        count: how many to return.
        pick: draws sources, places and pieces.
    """
    sentences = [[START, *source, END] for source in sources]
    after: dict[str, Counter[str]] = defaultdict(Counter)
    before: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        for one, other in itertools.pairwise(sentence):
            after[one][other] += 1
            before[other][one] += 1
    seen, tries = set(known), 0
    left = count
    while left and tries < count * TRIES:
        tries += 1
        sentence = list(pick.choice(sentences))
        if len(sentence) < SHORTEST + 2:
            continue
        for _ in range(pick.choice(SWAPS)):
            place = pick.randrange(1, len(sentence) - 1)
            following = before[sentence[place + 1]]
            fitting = {
                piece: min(times, following[piece])
                for piece, times in after[sentence[place - 1]].items()
                if piece not in (sentence[place], END) and piece in following
            }
            if fitting:
                sentence[place] = pick.choices(list(fitting), list(fitting.values()))[0]
        text = join(sentence[1:-1])
        if text and text not in seen:
            seen.add(text)
            left -= 1
            yield text


if __name__ == "__main__":
    main()
