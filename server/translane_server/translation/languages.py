"""Language pairs: finds the languages of a request, and tells the model its languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from translane_server.bundle.manifest import Languages, LanguageTokens
from translane_server.core.errors import FieldViolation
from translane_server.core.terminal import listed, shown
from translane_server.text.language_tags import AUTO, is_auto, lookup, meaning
from translane_server.text.placeholders import Span
from translane_server.text.tokenizer import Encode, Tokenizer

_NO_TOKENS = LanguageTokens()


@dataclass(eq=False)
class LanguagePair:
    """Two languages of a model, and the template that tells the model these languages.

    A source is `prefix`, then the ids of `text_prefix` + text, then `suffix`. The template's tokens stand for no part
    of a text. A text without tokens gets no template.
    """

    source: str  # the model's tag of the source language
    target: str  # the model's tag of the target language
    tokenizer: Tokenizer
    forced_ids: tuple[int, ...] = ()  # target ids that every translation starts with. They are no part of the text.
    text_prefix: str = ""  # text before every source text
    prefix: tuple[int, ...] = ()  # ids before the ids of the text
    suffix: tuple[int, ...] = ()  # ids after the ids of the text
    # returns the source ids of each text, with the template; an empty list if a text has no tokens
    encode: Encode = field(init=False)

    def __post_init__(self) -> None:
        self._has_template = bool(self.text_prefix or self.prefix or self.suffix)
        self.encode = self._encode_in_template if self._has_template else self.tokenizer.encode
        self._nothing = self.tokenizer.encode([self.text_prefix])[0] if self.text_prefix else []

    def _encode_in_template(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer.encode([self.text_prefix + text for text in texts])
        return [[*self.prefix, *ids, *self.suffix] if ids != self._nothing else [] for ids in encoded]

    def source_spans(self, text: str) -> list[Span | None]:
        """Return the part of `text` that each token of `encode([text])` stands for; None for the template's tokens."""
        if not self._has_template:
            return self.tokenizer.source_spans(text)
        if not self.encode([text])[0]:
            return []
        start = len(self.text_prefix)
        spans = [
            (max(0, span[0] - start), span[1] - start) if span and span[1] > start else None
            for span in self.tokenizer.source_spans(self.text_prefix + text)
        ]
        return [*[None] * len(self.prefix), *spans, *[None] * len(self.suffix)]


@dataclass(frozen=True)
class LanguagePairs:
    """The language pairs of a model."""

    languages: Languages
    tokenizer: Tokenizer

    def find(self, source: str, target: str) -> tuple[LanguagePair, list[FieldViolation]]:
        """Return the pair that `source` and `target` of a request mean, and what is wrong with them.

        If something is wrong, the pair is another pair of the model, so that the rest of the request can be checked.
        """
        sources, targets = self.languages.source, self.languages.target
        wrong = [*_check("source_language", source, sources), *_check("target_language", target, targets)]
        found = lookup(source, sources) or sources[0], lookup(target, targets) or targets[0]
        pairs = self.languages.templates.pair_prefixes
        if not wrong and pairs and found[1] not in pairs.get(found[0], {}):
            possible = [f"{one} to {other}" for one, others in pairs.items() for other in others]
            problem = f"the model does not translate {found[0]} to {found[1]}; it does {listed(possible)}"
            wrong.append(FieldViolation("target_language", problem))
        return self._pair(*found), wrong

    def default(self) -> LanguagePair:
        """Return the model's first pair."""
        templates, languages = self.languages.templates, self.languages
        source, others = next(iter(templates.pair_prefixes.items()), (languages.source[0], languages.target))
        return self._pair(source, next(iter(others)))

    def _pair(self, source: str, target: str) -> LanguagePair:
        templates = self.languages.templates
        of_source, of_target = templates.source.get(source, _NO_TOKENS), templates.target.get(target, _NO_TOKENS)
        return LanguagePair(
            source,
            target,
            self.tokenizer,
            (*of_source.forced, *of_target.forced),
            text_prefix=templates.pair_prefixes.get(source, {}).get(target, templates.text_prefix),
            prefix=(*of_source.source_prefix, *of_target.source_prefix),
            suffix=(*of_source.source_suffix, *of_target.source_suffix),
        )


def _check(name: str, wanted: str, available: Sequence[str]) -> list[FieldViolation]:
    if not wanted:
        if len(available) == 1:
            return []
        return [FieldViolation(name, f"is needed, the model has several: {listed(available)}")]
    if lookup(wanted, available):
        return []
    if means := meaning(wanted):
        auto = f' or "{AUTO}"' if name == "source_language" and not is_auto(wanted) else ""
        problem = f"{shown(wanted)} means {means}; send a language of the model ({listed(available)}){auto}"
        return [FieldViolation(name, problem)]
    return [FieldViolation(name, f"{shown(wanted)} is not a language of the model, which has: {listed(available)}")]
