"""Cases of decoding whose costs are measured in turns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.measuring.timed import TimedDecoder, Times
from translane_server.sentence import Sentence


@dataclass(frozen=True)
class Case:
    """Sentences to decode, all at once.

    Attributes:
        name: of the load or of the way to decode.
        decoder: decodes them.
        sentences: to decode.
        streams: how many of them are streamed.
    """

    name: str
    decoder: TimedDecoder
    sentences: Sequence[Sentence]
    streams: int = 0


def measure(cases: Sequence[Case], rounds: int) -> Iterator[list[list[Times]]]:
    """The times of each case, after each round; the lists of all rounds so far."""
    found: list[list[Times]] = [[] for _ in cases]
    shuffle = random.Random(0)
    for number in range(1 + rounds):
        for place in shuffle.sample(range(len(cases)), len(cases)):
            case = cases[place]
            times = case.decoder.decode(case.sentences, case.streams)
            if number:  # memory is bound and allocated in the first one
                found[place].append(times)
        if number:
            yield found
