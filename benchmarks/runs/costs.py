"""What decoding costs: where the time of a decoder step goes, and what options add to it.

    python -m benchmarks.runs.costs steps models/zh-en
    python -m benchmarks.runs.costs steps runs/base-random-bundle --rows 1 8 32 64 --threads 2
    python -m benchmarks.runs.costs ways models/zh-en
    python -m benchmarks.runs.costs beams models/zh-en --sentences ../shared/data/tatoeba-zh-en/test.tsv.gz

*steps* shows how much of a step is outside ONNX Runtime: taking requests, scheduling, choosing tokens, answering. In
the load *steady*, there are as many sentences as rows, all of one length, so that every step runs all rows. The load is
measured plain, with one sentence streamed, and with all sentences streamed. In *churn*, there are six times as many
sentences as rows, of many lengths: at almost every step some leave, rows are moved, and others are encoded and join.

Streams are read on another thread of the same process. At the end of a run, ONNX Runtime may have to wait for that
thread, as it never has in a server: where sentences are streamed, compare the time outside ONNX Runtime.

On CUDA the thread queues its work and then waits for the GPU. There, *outside* is all but the waits. Sentences ask for
no scores, so that several steps are taken at once where no sentence waits.

*ways* shows what each way to decode costs, beside plain greedy search. Each way fills all rows (a sentence takes a row
for each of its beams or hypotheses) for the same number of steps; no sentence ends before.

*beams* shows what beams cost around the decoder, copies of rows above all. As a sentence ends, the next one takes its
rows. `--sentences` names a file with a source text on each line, which a tab may end; the model ends the translations.
Without the file, sources are random, and each translation is as long as its source: a model of random weights has no
use for text, and its beams change parents more than a trained model's beams do.

Cases take turns, in another order in each round, so that a slow minute of the machine is spread over all.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.machine import Usage, describe
from benchmarks.measuring.cases import Case, measure
from benchmarks.measuring.timed import TimedDecoder, Times
from benchmarks.models.workload import random_sources, read_texts
from benchmarks.report.cost_tables import COLUMNS_OF, record_of, table
from benchmarks.report.results import write
from translane_server.bundle import Bundle, load_bundle
from translane_server.devices import Device, choose_device
from translane_server.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.sentence import Sentence

SOURCE_LENGTH = 12  # tokens, about what a Tatoeba or chat sentence has
TARGET_LENGTH = 40
CHURN_LENGTHS = (4, 60)  # shortest and longest target
BEAM_LENGTHS = (4, 40)  # of random sources and of their translations
BEAMS = {"beam_size": 4}
GREEDY = "greedy"
WAYS: dict[str, dict[str, Any]] = {
    GREEDY: {},
    "alignment": {"alignment": True},
    "repetition penalty 1.2": {"repetition_penalty": 1.2},
    "no repeated 3-gram": {"no_repeat_ngram_size": 3},
    "suppressed phrases (3)": {"suppressed_phrases": 3},
    "prefix of 10 tokens": {"prefix": 10},
    "4 alternatives": {"alternatives": True, "num_hypotheses": 4},
    "sampling": {"sampling": Sampling(seed=1)},
    "sampling, top_k 10": {"sampling": Sampling(seed=1, top_k=10)},
    "sampling, top_p 0.9": {"sampling": Sampling(seed=1, top_p=0.9)},
    "sampling, top_k 10, 4 hypotheses": {"sampling": Sampling(seed=1, top_k=10), "num_hypotheses": 4},
    "score": {"prefix": TARGET_LENGTH},
    "beam 4": BEAMS,
    "beam 4, 4 hypotheses": {**BEAMS, "num_hypotheses": 4},
    "beam 4, alignment": {**BEAMS, "alignment": True},
    "beam 4, coverage penalty": {**BEAMS, "coverage_penalty": 0.2},
    "beam 4, repetition penalty 1.2": {**BEAMS, "repetition_penalty": 1.2},
    "beam 4, no repeated 3-gram": {**BEAMS, "no_repeat_ngram_size": 3},
    "beam 4, suppressed phrases (3)": {**BEAMS, "suppressed_phrases": 3},
    "beam 4, terminology (1 phrase)": {**BEAMS, "required_phrases": 1},
    "beam 4, terminology (3 phrases)": {**BEAMS, "required_phrases": 3},
}


def steps(decoder: TimedDecoder, device: Device) -> Iterator[Case]:
    """The loads that show where a step's time goes."""
    rows, pick = decoder.rows, random.Random(0)
    lengths = [pick.randint(*CHURN_LENGTHS) for _ in range(6 * rows)]
    steady, churn = (
        [
            Sentence(source, DecodingOptions(length, scores=device == "cpu"))
            for source, length in zip(
                random_sources(decoder.bundle, [SOURCE_LENGTH] * len(targets)), targets, strict=True
            )
        ]
        for targets in ([TARGET_LENGTH] * rows, lengths)
    )
    yield Case("steady", decoder, steady)
    yield Case("steady, one stream", decoder, steady, 1)
    if rows > 1:
        yield Case("steady, all streams", decoder, steady, rows)
    yield Case("churn", decoder, churn)


def ways(decoder: TimedDecoder, only: str) -> Iterator[Case]:
    """Greedy search, and the ways to decode whose names contain `only`."""
    for name, values in WAYS.items():
        if name == GREEDY or only in name:
            sentences = way(decoder, **values)
            if decoder.has_attention or not sentences[0].options.attention:
                yield Case(name, decoder, sentences)


def way(
    decoder: TimedDecoder, *, prefix: int = 0, required_phrases: int = 0, suppressed_phrases: int = 0, **options: Any
) -> list[Sentence]:
    """As many sentences as fill the rows, all decoded in one way.

    Args:
        decoder: for whose rows.
        prefix: tokens that each translation starts with.
        required_phrases: how many phrases have to occur in each.
        suppressed_phrases: how many never occur.
        options: see `DecodingOptions`.
    """
    pick, surfaces = random.Random(0), decoder.vocabulary.surfaces
    ids = [token for token in range(len(surfaces)) if surfaces[token].strip()]
    phrases = [tuple(pick.choices(ids, k=2)) for _ in range(3)]
    texts = [b"".join(surfaces[token] for token in phrase).strip() for phrase in phrases]
    required = tuple(itertools.starmap(RequiredPhrase, zip(texts, phrases, strict=True)))[:required_phrases]
    suppressed = tuple(texts[:suppressed_phrases])
    resolved = DecodingOptions(TARGET_LENGTH - prefix, suppressed_phrases=suppressed, **options)
    sources = random_sources(decoder.bundle, [SOURCE_LENGTH] * (decoder.rows // resolved.rows))
    return [
        Sentence(source, resolved, forced_ids=tuple(pick.choices(ids, k=prefix)), required_phrases=required)
        for source in sources
    ]


def beams(decoder: TimedDecoder, sizes: Sequence[int], count: int, texts: Path | None) -> Iterator[Case]:
    """Greedy search and beams over the same sentences."""
    if texts:
        ids = decoder.tokenizer.encode(read_texts(texts)[:count])
        sources = [(tuple(source), 64) for source in ids if 0 < len(source) <= 64]
    else:
        pick = random.Random(0)
        lengths = [pick.randint(*BEAM_LENGTHS) for _ in range(count)]
        sources = list(zip(random_sources(decoder.bundle, lengths), lengths, strict=True))
    for size in sizes:
        sentences = [Sentence(source, DecodingOptions(length, beam_size=size)) for source, length in sources]
        yield Case(f"beam {size}" if size > 1 else GREEDY, decoder, sentences)


def parse() -> argparse.Namespace:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("bundle", type=Path)
    common.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    common.add_argument("-o", "--output", type=Path, help="KIND-MODEL-PRECISION.json of runs/bench by default")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="steps|ways|beams")
    of_steps, of_ways, of_beams = (kinds.add_parser(name, parents=[common]) for name in COLUMNS_OF)
    of_steps.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64])
    of_steps.add_argument("--rounds", type=int, default=5)
    of_steps.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    of_ways.add_argument("--rows", type=int, default=32)
    of_ways.add_argument("--rounds", type=int, default=9)
    of_ways.add_argument("--only", default="", help="ways whose names hold this text, and greedy search")
    of_beams.add_argument("--rows", type=int, default=64)
    of_beams.add_argument("--rounds", type=int, default=5)
    of_beams.add_argument("--sentences", type=Path, help="a file with a source text on each line")
    of_beams.add_argument("--count", type=int, default=320, help="of sentences")
    of_beams.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    return parser.parse_args()


def cases_of(arguments: argparse.Namespace, bundle: Bundle, device: Device) -> list[Case]:
    def decoder(rows: int, *, ends: bool = False) -> TimedDecoder:
        return TimedDecoder(bundle, rows=rows, threads=arguments.threads, ends=ends, device=device)

    if arguments.kind == "steps":
        return [case for rows in arguments.rows for case in steps(decoder(rows), device)]
    if arguments.kind == "ways":
        return list(ways(decoder(arguments.rows), arguments.only))
    texts = arguments.sentences
    return list(beams(decoder(arguments.rows, ends=texts is not None), arguments.beams, arguments.count, texts))


def main() -> None:
    arguments = parse()
    bundle = load_bundle(arguments.bundle)
    manifest = bundle.manifest
    device = choose_device(getattr(arguments, "device", "cpu"), manifest.precision)
    machine, usage = describe(), Usage()
    output = arguments.output or places.result(f"{arguments.kind}-{manifest.name}-{manifest.precision}", device)
    record: dict[str, Any] = {"machine": machine, "model": manifest.name, "precision": manifest.precision}
    record |= {"device": device, "threads": arguments.threads}
    cases = cases_of(arguments, bundle, device)
    found: list[list[Times]] = []
    for found in measure(cases, arguments.rounds):
        record |= {"usage": usage.so_far(), arguments.kind: record_of(cases, found)}
        write(output, record)
    for decoder in {id(case.decoder): case.decoder for case in cases}.values():
        decoder.close()
    print(
        f"{manifest.name}: {manifest.architecture.parameters:,} parameters, {manifest.precision}; {arguments.threads}"
        f" threads, onnxruntime {machine['versions'].get('onnxruntime')}, {machine['processor']};"
        f" medians of {arguments.rounds} rounds\n"
    )
    lines = table(arguments.kind, cases, found)
    if device == "cuda":
        lines[0] = lines[0].replace("in ONNX Runtime", "waiting for the GPU")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
