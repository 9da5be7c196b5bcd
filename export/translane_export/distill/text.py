"""The texts of a distillation: the sources that the teacher translates, and the pairs that a student learns from."""

from __future__ import annotations

import filecmp
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from translane_export.distill.settings import DistillSettings
from translane_export.train.data import Columns, SentencePair, read_lines
from translane_export.train.errors import DataError, ResumeError
from translane_export.train.evaluate import bleu_tokenizer
from translane_server.core.files import replaced_whole
from translane_server.core.quality import RATIO, suspicion
from translane_server.translation.languages import LanguagePair
from translane_server.translation.limits import CHARACTERS_PER_TOKEN

NO_PIECES, TOO_LONG, LONG = "no pieces", "source too long", "too long"
"""Why a source is not translated, or a translation is left out."""


def read_pairs(settings: DistillSettings) -> Iterator[tuple[int, SentencePair | None]]:
    """Yield the number and the pair of each line of the text; None for a bad line that is skipped.

    Raises:
        DataError: the file cannot be read; or a line is bad, and the settings refuse such lines.
    """
    columns = Columns(settings.source_column, settings.target_column if settings.reads_targets else None)
    for number, found in read_lines(settings.train, columns, settings.bad_lines):
        yield number, found if isinstance(found, SentencePair) else None


def write_sources(path: Path, settings: DistillSettings, languages: LanguagePair, longest: int) -> str:
    """Write the different sources of a text as JSON lines, and return a sentence about them.

    A source with more than `longest` pieces, its end included, and one without pieces are there without their text.

    Raises:
        DataError: the text cannot be read, or has no usable line.
        ResumeError: the file is there already, with other lines.
    """
    lines = bad = 0
    seen: set[bytes] = set()
    with replaced_whole(path) as new:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            for number, pair in read_pairs(settings):
                if pair is None:
                    bad += 1
                    continue
                lines += 1
                digest = hashlib.blake2b(pair.source.encode(), digest_size=16).digest()
                if digest not in seen:
                    seen.add(digest)
                    record = _record(pair, languages, longest, with_target=settings.nbest > 1)
                    file.write(json.dumps({"line": number, **record}, ensure_ascii=False) + "\n")
        if not lines:
            raise DataError(f"{settings.train}: no usable line")
        if path.exists():
            if not filecmp.cmp(path, new, shallow=False):
                raise ResumeError(
                    f"{path}: comes from another text, teacher or --max-length; another --output starts anew"
                )
            shutil.copystat(path, new)  # `translane batch` sees by the time that it is the same file
    skipped = f"; {bad:,} bad lines skipped" if bad else ""
    return f"{settings.train}: {lines:,} lines, {len(seen):,} different sources{skipped}"


def _record(pair: SentencePair, languages: LanguagePair, longest: int, *, with_target: bool) -> dict[str, Any]:
    # A text of more characters than any piece has cannot fit, and is not worth cutting into pieces.
    fits = len(pair.source) <= CHARACTERS_PER_TOKEN * longest
    pieces = len(languages.encode([pair.source])[0]) if fits else longest + 1
    if not 0 < pieces <= longest:
        return {"source": None, "left_out": TOO_LONG if pieces else NO_PIECES}
    return {"source": pair.source, "pieces": pieces} | ({"target": pair.target} if with_target else {})


def why_unfit(source: str, translation: str, source_pieces: int, pieces: int, max_length: int, max_ratio: float) -> str:
    """Return why a pair would teach a student mistakes; "" if it would not.

    ``source_pieces`` and the longest ratio count the ends of sentences; ``pieces`` of the translation and the longest
    length do not.
    """
    sizes = (source_pieces, pieces + 1)
    found = suspicion(source, translation, *sizes, max_ratio)
    return LONG if max(sizes) > max_length + 1 and found in ("", RATIO) else found


def closest(bleu: BLEU, texts: Sequence[str], reference: str) -> str:
    """Return the text closest to `reference` by sentence BLEU (Kim & Rush 2016, section 3.3); of equals the first."""
    return texts[0] if len(texts) == 1 else max(texts, key=lambda text: bleu.sentence_score(text, [reference]).score)


def write_pairs(path: Path, translated: Path, settings: DistillSettings, languages: LanguagePair) -> str:
    """Write the text that a student learns from as TSV, complete or not at all; return a sentence about it.

    ``translated`` is what `translane batch` makes of the file of sources.

    Raises:
        DataError: no translation is left; or the text's own pairs cannot be read.
    """
    # A short sentence may share no 4-gram with its reference, so only the orders that it has count.
    bleu = BLEU(tokenize=bleu_tokenizer(languages.target), effective_order=True)
    taught = own = 0
    left_out = Counter(record["reason"] for record in _json_lines(Path(f"{translated}.left-out.jsonl")))
    with replaced_whole(path) as new:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            for record in _json_lines(translated):
                found, reason = record["translation"], record.get("left_out")
                if found is None:  # `translane batch` lists it
                    continue
                if not reason:
                    texts = [" ".join(text.split()) for text in (found if isinstance(found, list) else [found])]
                    source, translation = record["source"], closest(bleu, texts, record.get("target", ""))
                    sizes = record["pieces"], len(languages.tokenizer.encode_target([translation])[0])
                    reason = why_unfit(source, translation, *sizes, settings.max_length, settings.max_ratio)
                if reason:
                    left_out[reason] += 1
                else:
                    file.write(f"{source}\t{translation}\n")
                    taught += 1
            for _, pair in read_pairs(settings) if settings.with_references else ():
                if pair:
                    file.write(f"{pair.source}\t{pair.target}\n")
                    own += 1
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items()))
        sentence = f"{taught:,} translations" + (f", and {own:,} of the text's own pairs" if own else "")
        sentence += f"; {left_out.total():,} sources left out" + (f" ({reasons})" if reasons else "")
        if not taught:
            raise DataError(f"{settings.train}: no translation is left to learn from; {sentence}")
    return f"{path}: {sentence}"


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open(encoding="utf-8", newline="\n") as file:
            yield from map(json.loads, file)
