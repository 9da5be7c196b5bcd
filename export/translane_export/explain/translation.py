"""One sentence on its way to ids, and its translation by the bundle's own graphs in the server's engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sentencepiece
import tokenizers

from translane_export.checks.running import decode
from translane_export.core.checkpoint import find_pair
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import SentencePieceTokenizerEntry
from translane_server.core.errors import SettingsError
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Hypothesis, Sentence
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.languages import LanguagePair
from translane_server.translation.limits import CHARACTERS_PER_TOKEN


@dataclass(frozen=True)
class SourceText:
    """A sentence as the model takes it: S source ids and their pieces."""

    text: str
    pair: LanguagePair
    ids: tuple[int, ...]
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Translated:
    """A translation as the decoder makes it, in T steps.

    ``fed_ids`` are the tokens that steps read, first what every translation starts with. ``chosen_ids`` are those that
    they choose, last the end of the sentence, unless it was cut off; the graphs give them these natural ``log_probs``.
    """

    source: SourceText
    text: str
    fed_ids: tuple[int, ...]
    fed_pieces: tuple[str, ...]
    chosen_ids: tuple[int, ...]
    chosen_pieces: tuple[str, ...]
    log_probs: tuple[float, ...]


def read_source(
    bundle: Bundle, tokenizer: Tokenizer, text: str, *, source_language: str = "", target_language: str = ""
) -> SourceText:
    """Return `text` as the bundle's model takes it.

    Raises:
        SettingsError: the model has no such languages, or `text` has no tokens or too many.
    """
    pair = find_pair(bundle.manifest.languages, tokenizer, source_language, target_language)
    most = bundle.manifest.limits.source_tokens
    if len(text) > CHARACTERS_PER_TOKEN * most:
        raise SettingsError(f"TEXT: it has {len(text):,} characters, at most {CHARACTERS_PER_TOKEN * most:,} are read")
    ids = pair.encode([text])[0]
    if not ids:
        raise SettingsError("TEXT: it has no tokens, so there is nothing to translate")
    if len(ids) > most:
        raise SettingsError(f"TEXT: it has {len(ids)} tokens, and the model takes {most}; give one shorter sentence")
    return SourceText(text, pair, tuple(ids), tuple(tokenizer.source_pieces(ids)))


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


def translate(
    bundle: Bundle, source: SourceText, threads: int, *, beam_size: int = 1, max_length: int | None = None
) -> Translated:
    """Translate `source`, greedily or with beams, and return the best translation.

    `max_length` is the most generated tokens; None means the bundle's default.

    Raises:
        SettingsError: the model cannot write so many tokens.
        ExportError: decoding fails.
    """
    manifest, forced = bundle.manifest, source.pair.forced_ids
    most = manifest.limits.target_tokens - len(forced)
    if max_length is not None and max_length > most:
        raise SettingsError(f"--max-length: it is {max_length}, and the model writes at most {most} tokens")
    longest = max_length or min(manifest.decoding_defaults.max_length, most)
    options = DecodingOptions(longest, beam_size=beam_size)
    sentence = Sentence(source.ids, options, forced_ids=forced, counted_ids=len(forced))
    ids = manifest.special_ids
    return _translated(source, decode(bundle, [sentence], threads)[0], ids.decoder_start, ids.eos)


def _translated(source: SourceText, best: Hypothesis, start: int, eos: int) -> Translated:
    chosen = (*best.token_ids, *([eos] if best.is_complete else []))
    fed = (start, *chosen[:-1])
    tokenizer = source.pair.tokenizer
    (text,) = tokenizer.decode([best.token_ids[len(source.pair.forced_ids) :]])

    def pieces(token_ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(tokenizer.target_pieces(token_ids))

    return Translated(source, text, fed, pieces(fed), chosen, pieces(chosen), best.token_log_probs)
