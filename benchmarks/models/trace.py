"""A trace of requests: sentences and paragraphs of a corpus that arrive in bursts, the same ones for every server.

Three of four requests are a sentence of the corpus. The others are paragraphs: two to eight neighbours of the corpus,
joined. Requests arrive at random moments, independently of each other, and in the last second of each five seconds five
times as often as before.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from translane_server.budget import UNLIMITED
from translane_server.text.sentence_ends import sentences

PARAGRAPHS = 0.25  # share of the requests
SHORTEST, LONGEST = 2, 8  # sentences of a paragraph
MEAN = 1 + PARAGRAPHS * ((SHORTEST + LONGEST) / 2 - 1)  # sentences of a request
CYCLE, BURST = 5.0, 1.0  # seconds from burst to burst, and of a burst
TIMES = 5.0  # as many requests arrive in a burst, in the same time
_ENDS = "。！？.!?"


@dataclass(frozen=True)
class TraceRequest:
    """A request of a trace.

    Attributes:
        at: when it is sent, from the beginning [s].
        texts: its sentences.
        paragraph: the same sentences as one text; None where the request has one sentence, or its texts are apart.
        max_length: of the translation of each sentence [tokens]; None for the server's default.
    """

    at: float
    texts: tuple[str, ...]
    paragraph: str | None = None
    max_length: int | None = None


def arrivals(requests_per_second: float, seed: int) -> Iterator[float]:
    """The times of requests without end [s], in bursts; `requests_per_second` is the mean."""
    pick = random.Random(seed)
    calm = requests_per_second * CYCLE / (CYCLE - BURST + TIMES * BURST)
    expected = pick.expovariate(1.0)  # requests that the rate brings on average until the next one
    for cycle in itertools.count():
        burst = (cycle + 1) * CYCLE - BURST
        for start, length, rate in ((cycle * CYCLE, CYCLE - BURST, calm), (burst, BURST, TIMES * calm)):
            passed = 0.0
            while expected <= rate * (length - passed):
                passed += expected / rate
                yield start + passed
                expected = pick.expovariate(1.0)
            expected -= rate * (length - passed)


def make_trace(
    lines: Sequence[str], language: str, *, rate: float, seconds: float, fixed: bool, seed: int = 0
) -> list[TraceRequest]:
    """The requests of a trace.

    Args:
        lines: sentences. Where `fixed` is set, a tab and the length of the translation follow each [tokens].
        language: a BCP-47 tag, by which paragraphs are cut into sentences.
        rate: mean of sentences a second.
        seconds: of the trace.
        fixed: whether the lengths of translations are fixed. A request then has its longest sentence's, and no request
            has a paragraph: random letters have no ends.
        seed: the same one gives the same trace.
    """
    pick = random.Random(seed)
    whole = lines if fixed else [line for line in lines if line[-1:] in _ENDS and line]
    found = list[TraceRequest]()
    for at in arrivals(rate / MEAN, seed):
        if at >= seconds:
            return found
        if pick.random() >= PARAGRAPHS or not whole:
            drawn = [pick.choice(lines)]
        else:
            first, count = pick.randrange(len(whole)), pick.randint(SHORTEST, LONGEST)
            drawn = [whole[(first + number) % len(whole)] for number in range(count)]
        found.append(_lengths_told(at, drawn) if fixed else _as_sent(at, drawn, language))
    return found


def _lengths_told(at: float, lines: Iterable[str]) -> TraceRequest:
    texts, lengths = zip(*(line.split("\t") for line in lines), strict=True)
    return TraceRequest(at, tuple(texts), max_length=max(map(int, lengths)))


def _as_sent(at: float, lines: Sequence[str], language: str) -> TraceRequest:
    """A sentence; or a paragraph and the sentences that Translane cuts it into."""
    if len(lines) == 1:
        return TraceRequest(at, (lines[0],))
    text = "".join(lines) if language.split("-")[0] == "zh" else " ".join(lines)
    return TraceRequest(at, tuple(text[start:end] for start, end in sentences(text, language, (), UNLIMITED)), text)


def write_trace(path: Path, trace: Iterable[TraceRequest]) -> None:
    """Write a trace, a line of JSON for each request."""
    path.write_text("".join(json.dumps(asdict(request)) + "\n" for request in trace), encoding="utf-8")


def read_trace(path: Path) -> list[TraceRequest]:
    """The requests of a file that `write_trace` has written."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [TraceRequest(**row | {"texts": tuple(row["texts"])}) for row in rows]
