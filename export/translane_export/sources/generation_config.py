"""Reads how a Hugging Face folder searches: what `generate` does there when it is called without arguments.

https://huggingface.co/docs/transformers/main_classes/text_generation
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from translane_export.sources.model_settings import ModelSettings
from translane_server.bundle.manifest import SearchDefaults
from translane_server.core.terminal import shown

_NOTHING: tuple[Any, ...] = (None, False, 0, "", [], {})
# Settings that change which tokens `generate` chooses, and that no decoding option of the server does. Each comes with
# the value that switches it off, besides those in `_NOTHING`.
_LEFT_OUT: Mapping[str, Any] = {
    "do_sample": None,
    "num_beam_groups": 1,
    "diversity_penalty": None,
    "encoder_no_repeat_ngram_size": None,
    "encoder_repetition_penalty": 1,
    "exponential_decay_length_penalty": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "guidance_scale": 1,
    "watermarking_config": None,
    "stop_strings": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "constraints": None,
    "force_words_ids": None,
}


@dataclass(frozen=True)
class GenerationSearch:
    """How a folder searches.

    Attributes:
        defaults: what the server's search does alike.
        left_out: name and value of each setting that the server's search does not do.
    """

    defaults: SearchDefaults
    left_out: tuple[str, ...] = ()


def generation_settings(settings: ModelSettings) -> ModelSettings:
    """Return the settings that `generate` reads.

    They are those of generation_config.json alone if the folder has that file. Older folders have them in config.json.
    """
    *_, (path, content) = settings.files.items()
    return ModelSettings({path: content})


def read_search(settings: ModelSettings) -> GenerationSearch:
    """Return the search of a folder whose `generation_settings` are given.

    A value that the server's options do not allow is left out, as is a setting that has no option.

    Raises:
        ExportError: a setting has a value of the wrong type.
    """
    never = settings.get("early_stopping") == "never"
    readers: dict[str, tuple[str, Callable[[str], Any]]] = {
        "beam_size": ("num_beams", settings.whole),
        "length_penalty": ("length_penalty", settings.number),
        "early_stopping": ("early_stopping", (lambda _name: False) if never else settings.flag),
        "repetition_penalty": ("repetition_penalty", settings.number),
        "no_repeat_ngram_size": ("no_repeat_ngram_size", settings.whole),
    }
    found: dict[str, Any] = {}
    left_out = [_said(settings, name) for name, off in _LEFT_OUT.items() if _is_on(settings.get(name), off)]
    for option, (name, read) in readers.items():
        if settings.get(name) is None:
            continue
        value = read(name)
        if _is_allowed(option, value):
            found[option] = value
        else:
            left_out.append(_said(settings, name))
    if minimum := _min_length(settings):
        if _is_allowed("min_length", minimum):
            found["min_length"] = minimum
        else:
            left_out.append(f"min_length {minimum}")
    if never and found.get("beam_size", 1) > 1 and found.get("length_penalty", 1.0) > 0:
        left_out.append(_said(settings, "early_stopping"))  # elsewhere "never" is the same as false
    if renormalizes(settings) and found.get("beam_size", 1) > 1 and _has_rules(found):
        left_out.append(f"{_said(settings, 'renormalize_logits')} after other rules than bad_words_ids")
    return GenerationSearch(_without_effectless(found), tuple(left_out))


def renormalizes(settings: ModelSettings) -> bool:
    """Whether the tokens that may follow share all of the probability. Raises ExportError."""
    return settings.flag("renormalize_logits")


def _min_length(settings: ModelSettings) -> int:
    """Return how many tokens come before the end of the sentence. Lengths of `generate` count the decoder's start."""
    if settings.get("min_new_tokens") is not None:
        return settings.whole("min_new_tokens")
    return max(0, settings.whole("min_length", 0) - 1)


def _without_effectless(found: Mapping[str, Any]) -> SearchDefaults:
    """Drop the values that every search has anyway, so that a greedy folder has no defaults."""
    effectless = {"beam_size": 1, "length_penalty": 1.0, "early_stopping": False, "repetition_penalty": 1.0}
    effectless["no_repeat_ngram_size"] = 0
    return SearchDefaults(**{name: value for name, value in found.items() if effectless.get(name) != value})


def _has_rules(found: Mapping[str, Any]) -> bool:
    return bool(found.get("min_length") or found.get("no_repeat_ngram_size")) or found.get("repetition_penalty", 1) != 1


def _is_allowed(option: str, value: Any) -> bool:
    try:
        SearchDefaults.model_validate({option: value})
    except ValidationError:
        return False
    return True


def _is_on(value: Any, off: Any) -> bool:
    return value not in _NOTHING and value != off


def _said(settings: ModelSettings, name: str) -> str:
    return f"{name} {shown(settings.get(name))}"
