"""What a bundle's translations are worth, for `translane inspect --quality`: scores, and what arrives of what must."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.evaluate import score
from translane_server.app.blocking_translator import Translator
from translane_server.bundle.bundle import read_manifest

_LENGTHS = (8, 16, 32)  # words of the reference up to which a sentence is of a group
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*", re.ASCII)
_NAME = re.compile(r"(?<![A-Za-z0-9])[A-Z][A-Za-z0-9-]+", re.ASCII)
_PLACEHOLDER = "{name}"


def quality_report(folder: Path, text: Path) -> dict[str, Any]:
    """Translate parallel text, TSV, with the bundle in `folder`, and return what came of it.

    Numbers and names count where source and reference share them. For placeholders, the first shared one that either
    side has once becomes `{name}` on both sides. It is in place if it has a neighbour that it has in the reference.

    Raises:
        DataError: the text cannot be read.
        TranslaneError: the bundle cannot be served.
    """
    pairs = [(pair.source, pair.target) for pair in read_parallel_text(text, Columns(0, 1), "refuse").pairs]
    marked = [found for pair in pairs if (found := _with_placeholder(*pair))]
    with Translator(folder) as translator:
        outputs = [each.text for each in translator.translate_iter(source for source, _ in pairs)]
        with_marks = [each.text for each in translator.translate_iter(source for source, _ in marked)]
    language = read_manifest(folder).target_languages[0]
    names = [*(f"up to {most} words" for most in _LENGTHS), f"more than {_LENGTHS[-1]} words"]
    groups: list[list[int]] = [[] for _ in names]
    for number, (_, reference) in enumerate(pairs):
        groups[bisect_left(_LENGTHS, len(reference.split()))].append(number)
    return {
        "all": _part(pairs, outputs, language),
        **{
            name: _part([pairs[at] for at in group], [outputs[at] for at in group], language)
            for name, group in zip(names, groups, strict=True)
            if group
        },
        "placeholders": {
            "sentences": len(marked),
            "kept": sum(output.count(_PLACEHOLDER) == 1 for output in with_marks),
            "in_place": sum(
                bool(_neighbours(output) & _neighbours(reference))
                for output, (_, reference) in zip(with_marks, marked, strict=True)
            ),
        },
    }


def _part(pairs: Sequence[tuple[str, str]], outputs: Sequence[str], language: str) -> Mapping[str, Any]:
    scores = score(outputs, [reference for _, reference in pairs], language)
    found: dict[str, Any] = {"sentences": len(pairs), "bleu": scores.bleu, "chrf": scores.chrf}
    for name, pattern in (("numbers", _NUMBER), ("names", _NAME)):
        shared = [set(pattern.findall(source)) & set(pattern.findall(reference)) for source, reference in pairs]
        kept = sum(
            words <= set(pattern.findall(output)) for words, output in zip(shared, outputs, strict=True) if words
        )
        found[f"{name}_kept"] = f"{kept} of {sum(map(bool, shared))}"
    return found


def _with_placeholder(source: str, reference: str) -> tuple[str, str] | None:
    for pattern in (_NAME, _NUMBER):
        for match in pattern.finditer(source):
            part = match.group()
            if source.count(part) == 1 and pattern.findall(reference).count(part) == reference.count(part) == 1:
                return source.replace(part, _PLACEHOLDER), reference.replace(part, _PLACEHOLDER)
    return None


def _neighbours(text: str) -> set[str]:
    """What stands right before and right after the placeholder: words, or the ends of the text."""
    before, found, after = text.partition(_PLACEHOLDER)
    if not found:
        return set()
    words = re.findall(r"\w+", before), re.findall(r"\w+", after)
    return {f"<{words[0][-1].lower() if words[0] else ''}", f">{words[1][0].lower() if words[1] else ''}"}
