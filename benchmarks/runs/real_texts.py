"""What real texts lose: paragraphs against single sentences, and placeholders in every form of keeping them.

    python -m benchmarks.runs.real_texts
    python -m benchmarks.runs.real_texts --count 100

Needs the test sentences of Tatoeba beside the repository (see benchmarks/places.py). BLEU is sacreBLEU's. Three tables:

- paragraphs: three sentences joined to one text, against the same sentences one by one.
- injected: a placeholder at a random place between tokens of each sentence. BLEU is that of the text around it.
- natural: sentences about 汤姆, who is {name} in the source and in the reference. BLEU is that of the text in which
  {name} is Tom again.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import sacrebleu

from benchmarks.engines.in_process import InProcess
from benchmarks.places import DEMO, SENTENCES
from translane.v1 import translation_pb2 as pb
from translane_server.errors import InvalidRequestError

PLACEHOLDERS = (
    "{name}", "%s", "{{user}}", "https://example.com/a?b=1", "%1$d", "🙂", '<x id="1"/>', "mail@example.org", "${x}",
    "{n, plural, one {# file} other {# files}}", "`ls -l`", "ABC-1234",
)  # fmt: skip
_ENDS = ("。", "？", "！", "?", "!", ".")

# A form of keeping placeholders: it translates sources, each with its placeholder.
Form = Callable[[InProcess, Sequence[str], Sequence[str]], list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=DEMO)
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="source, tab, reference on each line")
    parser.add_argument("--count", type=int, default=360, help="sentences with an injected placeholder")
    arguments = parser.parse_args()
    if not arguments.sentences.exists():
        sys.exit(f"{arguments.sentences} is not there")
    pairs = _pairs(arguments.sentences)
    with InProcess(arguments.bundle, threads=2) as model:
        _paragraphs(model, pairs)
        _injected(model, random.Random(1).sample(pairs, min(arguments.count, len(pairs))))
        valid = arguments.sentences.with_name("valid.tsv.gz")
        _natural(model, [*pairs, *(_pairs(valid) if valid.exists() else ())])


def _pairs(path: Path) -> list[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        fields = [line.rstrip("\n").split("\t") for line in lines]
    return [(source, target) for source, target, *_ in fields]


def _bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    return float(sacrebleu.corpus_bleu(list(hypotheses), [list(references)]).score)


def _paragraphs(model: InProcess, pairs: Sequence[tuple[str, str]]) -> None:
    ended = [pair for pair in pairs if pair[0].endswith(_ENDS)]
    triples = [ended[start : start + 3] for start in range(0, len(ended) - 2, 3)]
    references = [" ".join(target for _, target in triple) for triple in triples]
    texts = ["".join(source for source, _ in triple) for triple in triples]
    print(f"\n| {len(triples)} texts of three sentences | BLEU |\n|---|---:|")
    alone = model.texts([source for triple in triples for source, _ in triple], split_sentences=False)
    one_by_one = [" ".join(alone[start : start + 3]) for start in range(0, len(alone), 3)]
    for name, found in (
        ("sentence by sentence", one_by_one),
        ("auto", model.texts(texts)),
        ("split_sentences true", model.texts(texts, split_sentences=True)),
        ("split_sentences false", model.texts(texts, split_sentences=False)),
    ):
        print(f"| {name} | {_bleu(found, references):.1f} |", flush=True)


def _untouched(model: InProcess, sources: Sequence[str], _placeholders: Sequence[str]) -> list[str]:
    return model.texts(sources, split_sentences=False, preserve_untranslatable=False)


def _taken_out(model: InProcess, sources: Sequence[str], _placeholders: Sequence[str]) -> list[str]:
    return model.texts(sources, split_sentences=False)


def _taken_out_of_beams(model: InProcess, sources: Sequence[str], _placeholders: Sequence[str]) -> list[str]:
    return model.texts(sources, split_sentences=False, beam_size=4)


def _constrained(model: InProcess, sources: Sequence[str], placeholders: Sequence[str]) -> list[str]:
    found = []
    for source, placeholder in zip(sources, placeholders, strict=True):
        terms = [pb.Term(source=placeholder, target=placeholder)]
        options = {"split_sentences": False, "preserve_untranslatable": False, "beam_size": 4}
        try:
            found += model.texts([source], terminology=terms, **options)
        except InvalidRequestError:  # the vocabulary cannot spell the placeholder
            found += model.texts([source], **options)
    return found


def _cut_and_rejoined(model: InProcess, sources: Sequence[str], placeholders: Sequence[str]) -> list[str]:
    parts = [source.partition(placeholder) for source, placeholder in zip(sources, placeholders, strict=True)]
    options = {"split_sentences": False, "preserve_untranslatable": False}
    before = model.texts([one for one, _, _ in parts], **options)
    after = model.texts([other for _, _, other in parts], **options)
    return [f"{one} {middle} {other}".strip() for one, (_, middle, _), other in zip(before, parts, after, strict=True)]


def _stood_in_for(stand_in: str) -> Form:
    """Return the form that translates a stand-in for each placeholder, and looks for it in the translation.

    Where the stand-in is not there exactly once, the placeholder is taken out and put back.
    """
    place = re.compile(rf"(?<!\w){stand_in}(?!\w)")

    def translate(model: InProcess, sources: Sequence[str], placeholders: Sequence[str]) -> list[str]:
        masked = [source.replace(each, stand_in, 1) for source, each in zip(sources, placeholders, strict=True)]
        found = model.texts(masked, split_sentences=False, preserve_untranslatable=False)
        others = _taken_out(model, sources, placeholders)
        once = [len(place.findall(text)) == 1 for text in found]
        print(f"| {stand_in} alone | {sum(once) / len(once):.1%} | |")
        return [
            text.replace(stand_in, each) if is_there else other
            for text, each, is_there, other in zip(found, placeholders, once, others, strict=True)
        ]

    return translate


FORMS: dict[str, Form] = {
    "nothing is done": _untouched,
    "taken out, put back": _taken_out,
    "taken out, put back; 4 beams": _taken_out_of_beams,
    "constrained decoding; 4 beams": _constrained,
    "cut and rejoined": _cut_and_rejoined,
    "stood in for by 7, or else taken out": _stood_in_for("7"),
    "stood in for by Tom, or else taken out": _stood_in_for("Tom"),
}


def _injected(model: InProcess, pairs: Sequence[tuple[str, str]]) -> None:
    choice = random.Random(2)
    placeholders = [PLACEHOLDERS[number % len(PLACEHOLDERS)] for number in range(len(pairs))]
    sources = []
    for (source, _), placeholder in zip(pairs, placeholders, strict=True):
        pieces = model.tokenizer.source_surfaces(source)
        places = [len("".join(pieces[:number])) for number in range(len(pieces))]
        # beside a letter of ASCII, a placeholder would be part of a word
        free = [place for place in places if not (source[max(0, place - 1) : place + 1].isascii())] or [len(source)]
        place = choice.choice(free)
        sources.append(f"{source[:place]}{placeholder}{source[place:]}")
    references = [target for _, target in pairs]
    plain = [source for source, _ in pairs]
    print(f"\n| {len(pairs)} injected placeholders | survive | BLEU of the rest |\n|---|---:|---:|")
    for beams in (1, 4):
        found = model.texts(plain, split_sentences=False, beam_size=beams)
        print(
            f"| without placeholders{'; 4 beams' if beams > 1 else ''} | | {_bleu(found, references):.1f} |", flush=True
        )
    for name, form in FORMS.items():
        found = form(model, sources, placeholders)
        rest = [
            re.sub(r"\s+([.,!?])", r"\1", " ".join(text.replace(each, " ").split()))
            for text, each in zip(found, placeholders, strict=True)
        ]
        survive = _survivors(found, placeholders)
        print(f"| {name} | {survive / len(found):.1%} | {_bleu(rest, references):.1f} |", flush=True)


def _natural(model: InProcess, pairs: Sequence[tuple[str, str]]) -> None:
    chosen = [
        (re.sub("汤姆|湯姆", "{name}", source), target.replace("Tom", "{name}"), source, target)
        for source, target in pairs
        if len(re.findall("汤姆|湯姆", source)) == 1 and len(re.findall(r"\bTom\b", target)) == 1
    ]
    sources = [each[0] for each in chosen]
    placeholders = ["{name}"] * len(chosen)
    references = [each[3] for each in chosen]
    print(f"\n| {len(chosen)} sentences about {{name}} | survive | BLEU |\n|---|---:|---:|")
    for beams in (1, 4):
        found = model.texts([each[2] for each in chosen], split_sentences=False, beam_size=beams)
        print(f"| with the name{'; 4 beams' if beams > 1 else ''} | | {_bleu(found, references):.1f} |", flush=True)
    for name, form in FORMS.items():
        found = form(model, sources, placeholders)
        named = [text.replace("{name}", "Tom") for text in found]
        survive = _survivors(found, placeholders)
        print(f"| {name} | {survive / len(found):.1%} | {_bleu(named, references):.1f} |", flush=True)


def _survivors(texts: Sequence[str], placeholders: Sequence[str]) -> int:
    return sum(text.count(each) == 1 for text, each in zip(texts, placeholders, strict=True))


if __name__ == "__main__":
    main()
