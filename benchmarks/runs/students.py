"""Students against their teacher: BLEU of each bundle, and how many times as fast it is.

    python -m benchmarks.runs.students models/zh-en models/student
    python -m benchmarks.runs.students models/zh-en models/student --sentences test.tsv.gz --rows 1 32 --rounds 7

The first bundle is the teacher. All bundles translate the sentences in turns, in another order in each round, and end
their translations themselves. A ratio is the teacher's time over the student's, for the same sentences in the same
round; the table has the median of the rounds. Times are processor time of the replica's thread, with what it waits for
ONNX Runtime: see benchmarks/measuring/timed.py. Compare bundles of one precision.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import places
from benchmarks.machine import describe
from benchmarks.measuring.cases import Case, measure
from benchmarks.measuring.quality import translate
from benchmarks.measuring.timed import SOURCE_CAPACITY, TimedDecoder, Times
from benchmarks.models.workload import read_fields
from benchmarks.report.results import write
from translane_export.train.evaluate import score
from translane_server.bundle import Bundle, load_bundle
from translane_server.options import DecodingOptions
from translane_server.requests.language_pairs import LanguagePairs
from translane_server.sentence import Sentence

LONGEST = 64  # tokens of a translation

HEADER = "| bundle | precision | parameters | rows | beams | BLEU | ms, encoder | ms, decoder | sentences/s | ratio |"


@dataclasses.dataclass(frozen=True)
class Row:
    """A bundle in one setting: rows, beams, BLEU, medians of milliseconds for all sentences, and the ratio."""

    bundle: str
    precision: str
    parameters: int
    rows: int
    beams: int
    bleu: float
    encoder_ms: float
    decoder_ms: float
    sentences_per_second: float
    ratio: float

    def __str__(self) -> str:
        return (
            f"| {self.bundle} | {self.precision} | {self.parameters:,} | {self.rows} | {self.beams} | {self.bleu:.2f}"
            f" | {self.encoder_ms:.0f} | {self.decoder_ms:.0f} | {self.sentences_per_second:,.0f}"
            f" | **{self.ratio:.2f}** |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+", help="the teacher's, and students'")
    parser.add_argument("--sentences", type=Path, default=places.SENTENCES, help="source, tab, reference on each line")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timed", type=int, default=320, help="how many sentences are timed; all count for BLEU")
    parser.add_argument("-o", "--output", type=Path, default=places.result("students"))
    arguments = parser.parse_args()
    pairs = [(fields[0], fields[1]) for fields in read_fields(arguments.sentences)]
    bundles = [load_bundle(folder) for folder in arguments.bundles]
    machine = describe()
    print(f"{machine['processor']}; {arguments.threads} threads, medians of {arguments.rounds} rounds\n\n{HEADER}")
    print("|---|---|" + "---:|" * (HEADER.count("|") - 3))
    rows: list[Row] = []
    for beams in arguments.beams:
        options = DecodingOptions(LONGEST, beam_size=beams, scores=beams > 1)
        bleu = [bleu_of(bundle, pairs, options, arguments.threads) for bundle in bundles]
        for count in arguments.rows:
            timed = pairs[: arguments.timed]
            for row in compare(bundles, bleu, timed, options, count * beams, arguments.threads, arguments.rounds):
                rows.append(row)
                print(row, flush=True)
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
    decoders = [TimedDecoder(bundle, rows=rows, threads=threads, ends=True) for bundle in bundles]
    cases = [case(decoder, pairs, options) for decoder in decoders]
    found: list[list[Times]] = []
    for found in measure(cases, rounds):
        pass
    for decoder in decoders:
        decoder.close()
    for bundle, each, quality, times in zip(bundles, cases, bleu, found, strict=True):
        manifest, total = bundle.manifest, statistics.median(one.total for one in times)
        yield Row(
            manifest.name if bundle is bundles[0] else bundle.folder.name,
            manifest.precision,
            manifest.architecture.parameters,
            rows,
            options.beam_size,
            quality,
            1e3 * statistics.median(one.encode for one in times),
            1e3 * statistics.median(one.decode for one in times),
            len(each.sentences) / total,
            statistics.median(first.total / one.total for first, one in zip(found[0], times, strict=True)),
        )


def case(decoder: TimedDecoder, pairs: Sequence[tuple[str, str]], options: DecodingOptions) -> Case:
    """The sentences as the decoder's model takes them, without those that are longer than is measured."""
    languages = LanguagePairs(decoder.bundle.manifest.languages, decoder.tokenizer).default()
    ids = languages.encode([source for source, _ in pairs])
    sentences = [Sentence(source, options, forced_ids=languages.forced_ids) for source in ids]
    return Case("", decoder, [one for one in sentences if 0 < len(one.source_ids) <= SOURCE_CAPACITY])


if __name__ == "__main__":
    main()
