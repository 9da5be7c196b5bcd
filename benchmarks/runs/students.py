"""Students against their teacher: BLEU of each bundle, and how many times as fast it is.

    python -m benchmarks.runs.students models/zh-en models/student
    python -m benchmarks.runs.students models/zh-en models/student --sentences test.tsv.gz --rows 1 32 --rounds 7

The first bundle is the teacher. All bundles translate the sentences in turns, in another order in each round, and end
their translations themselves. A ratio is the teacher's time over the student's, for the same sentences in the same
round; the table has the median of the rounds. Times are processor time of the whole process, the dispatcher's included,
so that other programs change little of what is measured. Compare bundles of one precision.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import places
from benchmarks.machine import describe
from benchmarks.measuring.quality import translate
from benchmarks.measuring.timed import SOURCE_CAPACITY
from benchmarks.models.workload import read_fields
from benchmarks.report.results import write
from benchmarks.report.student_tables import HEADER, RULE
from benchmarks.report.student_tables import row as table_row
from translane_export.train.evaluate import score
from translane_server.bundle import Bundle, load_bundle
from translane_server.local import LocalDecoder
from translane_server.options import DecodingOptions
from translane_server.requests.language_pairs import LanguagePairs
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.sentence import Sentence
from translane_server.text.tokenizer import load_tokenizer
from translane_server.vocabulary import TargetVocabulary

LONGEST = 64  # tokens of a translation


@dataclasses.dataclass(frozen=True)
class Row:
    """A bundle in one setting: rows, beams, BLEU, milliseconds of the processor for a sentence, and the ratio."""

    bundle: str
    precision: str
    parameters: int
    rows: int
    beams: int
    bleu: float
    milliseconds: float
    ratio: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+", help="the teacher's, and students'")
    parser.add_argument("--sentences", type=Path, default=places.SENTENCES, help="source, tab, reference on each line")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32], help="sentences at once; a beam takes a row")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timed", type=int, default=320, help="how many sentences are timed; all count for BLEU")
    parser.add_argument("-o", "--output", type=Path, default=places.result("students"))
    arguments = parser.parse_args()
    pairs = [(fields[0], fields[1]) for fields in read_fields(arguments.sentences)]
    bundles = [load_bundle(folder) for folder in arguments.bundles]
    machine = describe()
    print(
        f"{machine['processor']}; {arguments.threads} threads, medians of {arguments.rounds} rounds\n\n{HEADER}\n{RULE}"
    )
    rows: list[Row] = []
    for beams in arguments.beams:
        options = DecodingOptions(LONGEST, beam_size=beams, scores=beams > 1)
        bleu = [bleu_of(bundle, pairs, options, arguments.threads) for bundle in bundles]
        for count in arguments.rows:
            timed = pairs[: arguments.timed]
            for row in compare(bundles, bleu, timed, options, count * beams, arguments.threads, arguments.rounds):
                rows.append(row)
                print(table_row(dataclasses.asdict(row)), flush=True)
                write(arguments.output, {"machine": machine, "rows": [dataclasses.asdict(each) for each in rows]})


def bleu_of(bundle: Bundle, pairs: Sequence[tuple[str, str]], options: DecodingOptions, threads: int) -> float:
    """BLEU of the bundle's translations, 0 to 100."""
    texts = [each.text for each in translate(bundle, pairs, options, threads)]
    return score(texts, [reference for _, reference in pairs], bundle.manifest.target_languages[0]).bleu


def compare(
    bundles: Sequence[Bundle],
    bleu: Sequence[float],
    pairs: Sequence[tuple[str, str]],
    options: DecodingOptions,
    rows: int,
    threads: int,
    rounds: int,
) -> Iterator[Row]:
    """Time the bundles in turns; return a row for each, with its ratio to the first bundle."""
    found: list[list[float]] = [[] for _ in bundles]
    shuffle = random.Random(0)
    with contextlib.ExitStack() as stack:
        decoders = [stack.enter_context(opened(bundle, options, rows, threads)) for bundle in bundles]
        loads = [load(bundle, pairs, options) for bundle in bundles]
        for number in range(1 + rounds):
            for place in shuffle.sample(range(len(bundles)), len(bundles)):
                started = time.process_time()
                decoders[place].decode(loads[place])
                if number:  # memory is bound and allocated in the first one
                    found[place].append((time.process_time() - started) / len(loads[place]))
    for bundle, quality, times in zip(bundles, bleu, found, strict=True):
        manifest = bundle.manifest
        yield Row(
            manifest.name if bundle is bundles[0] else bundle.folder.name,
            manifest.precision,
            manifest.architecture.parameters,
            rows,
            options.beam_size,
            quality,
            1e3 * statistics.median(times),
            statistics.median(first / one for first, one in zip(found[0], times, strict=True)),
        )


def opened(bundle: Bundle, options: DecodingOptions, rows: int, threads: int) -> LocalDecoder:
    """A decoder of the bundle's translations. Start it."""
    ids, limits = bundle.manifest.special_ids, bundle.manifest.limits
    backend = OrtBackend(
        Sessions(bundle, threads=threads),
        rows=rows,
        source_capacity=min(SOURCE_CAPACITY, limits.source_tokens),
        target_capacity=min(options.max_length, limits.target_tokens),
    )
    return LocalDecoder(backend, TargetVocabulary(ids.decoder_start, ids.eos))


def load(bundle: Bundle, pairs: Sequence[tuple[str, str]], options: DecodingOptions) -> list[Sentence]:
    """The sentences as the bundle's model takes them, without those that are longer than is measured."""
    languages = LanguagePairs(bundle.manifest.languages, load_tokenizer(bundle)).default()
    ids = languages.encode([source for source, _ in pairs])
    return [Sentence(source, options) for source in ids if 0 < len(source) <= SOURCE_CAPACITY]


if __name__ == "__main__":
    main()
