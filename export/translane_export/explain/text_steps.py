"""A text on its way to ids: what the tokenizer makes of it, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import sentencepiece
import tokenizers

from translane_export.explain.translated import SourceText
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import SentencePieceTokenizerEntry


@dataclass(frozen=True)
class TextStep:
    """A step: its name, what it makes, how much that is, and what happens."""

    name: str
    value: str
    size: str
    what: str


def text_steps(bundle: Bundle, source: SourceText) -> tuple[TextStep, ...]:
    """Return the steps of `source` from text to ids. The bundle's tokenizer has read it before."""
    templates = bundle.manifest.language_templates
    pair = source.pair
    prefix = templates.pair_prefixes.get(pair.source, {}).get(pair.target, templates.text_prefix)
    prefixed = prefix + source.text
    normal = _normalised(bundle, prefixed)
    return (
        TextStep("text", source.text, f"{len(source.text)} characters", "what you gave"),
        *((TextStep("with prefix", prefixed, f"{len(prefixed)} characters", "the model's task"),) if prefix else ()),
        TextStep("normalised text", normal, f"{len(normal)} characters", "one spelling for what means the same"),
        TextStep(
            "pieces",
            " ".join(source.pieces),
            f"S = {len(source.pieces)}",
            "the vocabulary's pieces, with those that mark the end or a language",
        ),
        TextStep("ids", " ".join(map(str, source.ids)), f"S = {len(source.ids)}", "the number of each piece"),
    )


def _normalised(bundle: Bundle, text: str) -> str:
    entry = bundle.manifest.tokenizer
    if isinstance(entry, SentencePieceTokenizerEntry):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(bundle.path(entry.source)))
        return str(processor.normalize(text))
    normalizer = tokenizers.Tokenizer.from_file(str(bundle.path(entry.file))).normalizer
    return text if normalizer is None else str(normalizer.normalize_str(text))
