"""What a bundle's translations are worth, for `translane inspect --quality`: scores, and what arrives of what must."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.evaluate import score
from translane_export.train.stand_ins import Kind, Lexicon, find_parts, learn_lexicon
from translane_server.app.blocking_translator import Translator
from translane_server.bundle.bundle import read_manifest
from translane_server.text.characters import untold_letters

_LENGTHS = (8, 16, 32)  # words of the reference up to which a sentence is of a group
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*", re.ASCII)
_NAME = re.compile(r"(?<![A-Za-z0-9])[A-Z][A-Za-z0-9-]+", re.ASCII)
_PLACEHOLDER = "{name}"


def quality_report(folder: Path, text: Path, beam_size: int | None = None) -> dict[str, dict[str, Any]]:
    """Translate parallel text, TSV, with the bundle in `folder`, and return what came of it.

    Numbers and names count where source and reference share them. For placeholders, the first number or name that
    each side has once becomes `{name}` on both sides; names that mean each other are learnt from the text itself. A
    placeholder is in place if it has a neighbour that it has in the reference. BLEU with placeholders is that of
    translations in which the number or name is put back; BLEU of the same sentences without placeholders is beside it.

    Raises:
        DataError: the text cannot be read.
        TranslaneError: the bundle cannot be served.
    """
    pairs = [(pair.source, pair.target) for pair in read_parallel_text(text, Columns(0, 1), "refuse").pairs]
    lexicon = learn_lexicon(pairs)
    marked = {row: found for row, pair in enumerate(pairs) if (found := _with_placeholder(*pair, lexicon))}
    with Translator(folder) as translator:
        outputs = [each.text for each in translator.translate_iter((pair[0] for pair in pairs), beam_size=beam_size)]
        sources = (source for source, _, _ in marked.values())
        marked_outputs = [each.text for each in translator.translate_iter(sources, beam_size=beam_size)]
    manifest = read_manifest(folder)
    source_language, language = manifest.source_languages[0], manifest.target_languages[0]
    names = [*(f"up to {most} words" for most in _LENGTHS), f"more than {_LENGTHS[-1]} words"]
    groups: list[list[int]] = [[] for _ in names]
    for number, (_, reference) in enumerate(pairs):
        groups[bisect_left(_LENGTHS, len(reference.split()))].append(number)
    letters = untold_letters(source_language, language)
    report = {
        "all": _part(pairs, outputs, language),
        **{
            name: _part([pairs[at] for at in group], [outputs[at] for at in group], language)
            for name, group in zip(names, groups, strict=True)
            if group
        },
        "placeholders": {"sentences": len(marked), **_placeholders(pairs, outputs, marked, marked_outputs, language)},
    }
    if letters:
        report["letters of the source's script"] = {
            "in_translations": sum(bool(letters.search(output)) for output in outputs),
            "in_references": sum(bool(letters.search(reference)) for _, reference in pairs),
        }
    return report


def as_table(report: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a report as Markdown, for people and model cards."""
    yield from ("| sentences | number | BLEU | chrF | numbers kept | names kept |", "|---|---:|---:|---:|---:|---:|")
    for name, part in report.items():
        if "chrf" in part:
            cells = f"{part['sentences']:,}", f"{part['bleu']:.1f}", f"{part['chrf']:.1f}"
            yield f"| {' | '.join((name, *cells, part['numbers_kept'], part['names_kept']))} |"
    yield ""
    marks = report["placeholders"]
    line = f"Placeholders: {marks['kept']:,} of {marks['sentences']:,} arrive, {marks['in_place']:,} in place"
    if marks["sentences"]:
        line += f"; BLEU {marks['bleu']:.1f}, and {marks['bleu_without']:.1f} without them"
    yield f"{line}."
    if letters := report.get("letters of the source's script"):
        yield (
            f"Letters of the source's script: in {letters['in_translations']:,} translations, and in"
            f" {letters['in_references']:,} references."
        )


def _part(pairs: Sequence[tuple[str, str]], outputs: Sequence[str], language: str) -> dict[str, Any]:
    scores = score(outputs, [reference for _, reference in pairs], language)
    found: dict[str, Any] = {"sentences": len(pairs), "bleu": scores.bleu, "chrf": scores.chrf}
    for name, pattern in (("numbers", _NUMBER), ("names", _NAME)):
        shared = [set(pattern.findall(source)) & set(pattern.findall(reference)) for source, reference in pairs]
        kept = sum(
            words <= set(pattern.findall(output)) for words, output in zip(shared, outputs, strict=True) if words
        )
        found[f"{name}_kept"] = f"{kept} of {sum(map(bool, shared))}"
    return found


def _placeholders(
    pairs: Sequence[tuple[str, str]],
    outputs: Sequence[str],
    marked: Mapping[int, tuple[str, str, str]],
    marked_outputs: Sequence[str],
    language: str,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kept": sum(output.count(_PLACEHOLDER) == 1 for output in marked_outputs),
        "in_place": sum(
            bool(_neighbours(output) & _neighbours(reference))
            for output, (_, reference, _) in zip(marked_outputs, marked.values(), strict=True)
        ),
    }
    if marked:
        references = [pairs[row][1] for row in marked]
        put_back = [
            output.replace(_PLACEHOLDER, word)
            for output, (_, _, word) in zip(marked_outputs, marked.values(), strict=True)
        ]
        found["bleu"] = score(put_back, references, language).bleu
        found["bleu_without"] = score([outputs[row] for row in marked], references, language).bleu
    return found


def _with_placeholder(source: str, reference: str, lexicon: Lexicon) -> tuple[str, str, str] | None:
    """Return a pair with a placeholder on both sides, and what the reference had in its place."""
    parts = [part for part in find_parts(source, reference, lexicon) if part.kind is not Kind.WORD]
    if not parts:
        return None
    part = parts[0]
    sides = ((source, part.source), (reference, part.target))
    marked = [text[:start] + _PLACEHOLDER + text[end:] for text, (start, end) in sides]
    return marked[0], marked[1], reference[slice(*part.target)]


def _neighbours(text: str) -> set[str]:
    """What stands right before and right after the placeholder: words, or the ends of the text."""
    before, found, after = text.partition(_PLACEHOLDER)
    if not found:
        return set()
    words = re.findall(r"\w+", before), re.findall(r"\w+", after)
    return {f"<{words[0][-1].lower() if words[0] else ''}", f">{words[1][0].lower() if words[1] else ''}"}
