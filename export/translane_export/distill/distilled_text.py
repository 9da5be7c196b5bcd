"""The text that a student learns from: the sources of a text, with the teacher's translations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

from translane_export.distill.errors import DistillError
from translane_export.distill.filters import Filters
from translane_export.distill.journal import Journal, Output, Record
from translane_export.distill.unique_sources import Text, UniqueSource
from translane_export.train.errors import ResumeError
from translane_export.train.evaluate import bleu_tokenizer
from translane_server.core.files import replaced_whole


@dataclass(frozen=True)
class Written:
    """What a new text holds: the teacher's pairs and the text's own, and how many sources are left out, by reason."""

    taught: int
    references: int
    left_out: Counter[str]

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.left_out.items()))
        own = f", and {self.references:,} of the text's own pairs" if self.references else ""
        left_out = f"{sum(self.left_out.values()):,} sources left out" + (f" ({reasons})" if reasons else "")
        return f"{self.taught:,} translations{own}; {left_out}"


def matched(text: Text, journal: Journal) -> Iterator[tuple[UniqueSource, Record | None]]:
    """Return each different source of the text with its record; None for sources that the teacher has yet to see.

    Raises:
        DataError: the text cannot be read.
        DistillError: the journal cannot be read.
        ResumeError: the journal's records are those of another text.
    """
    for source, record in zip_longest(text.unique(), journal.records()):
        if record and (source is None or (record.line, record.key) != (source.line, source.key)):
            raise ResumeError(
                f"{journal.path}: it has an output for line {record.line:,} of another text than {text.path};"
                " another --output starts anew"
            )
        assert source
        yield source, record


def write_text(
    path: Path, text: Text, journal: Journal, filters: Filters, target_language: str, *, with_references: bool
) -> Written:
    """Write the new text as TSV; the file appears complete or not at all.

    Of several outputs, the one closest to the source's target is taken.

    Args:
        path: the new file.
        text: the text with the sources.
        journal: the teacher's outputs for all of them.
        filters: say which pairs stay.
        target_language: the tag of the teacher's target language.
        with_references: whether the text's own pairs follow the teacher's.

    Raises:
        DataError, DistillError, ResumeError: see `matched`; and DistillError if no translation is left.
    """
    closest = Closest(target_language)
    taught = references = 0
    left_out: Counter[str] = Counter()
    with replaced_whole(path) as new:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            for source, record in matched(text, journal):
                if record is None:
                    raise ResumeError(f"{text.path}: has changed; --resume goes on with its new lines")
                if record.left_out:
                    left_out[record.left_out] += 1
                    continue
                output = closest.choose(record.outputs, source.target)
                if filters.keeps(source.text, record.pieces, output):
                    file.write(f"{source.text}\t{output.text}\n")
                    taught += 1
            for _, pair in text.pairs() if with_references else ():
                file.write(f"{pair.source}\t{pair.target}\n")
                references += 1
        written = Written(taught, references, left_out + filters.left_out)
        if not taught:
            raise DistillError(f"{text.path}: no translation is left to learn from; {written}")
    return written


class Closest:
    """Chooses among translations by sentence BLEU against a reference (Kim & Rush 2016, section 3.3)."""

    def __init__(self, target_language: str) -> None:
        # A short sentence may share no 4-gram with its reference, so only the orders that it has count.
        self._bleu = BLEU(tokenize=bleu_tokenizer(target_language), effective_order=True)

    def choose(self, outputs: Sequence[Output], reference: str) -> Output:
        """Return the output closest to `reference`; of equally close ones the first, which is the likeliest."""
        if len(outputs) == 1:
            return outputs[0]
        return max(outputs, key=lambda output: self._bleu.sentence_score(output.text, [reference]).score)
