"""The limits of requests to a model: what both the settings and the model allow."""

from __future__ import annotations

from translane_server.errors import SettingsError
from translane_server.manifest import Manifest
from translane_server.requests.limits import RequestLimits, TokenLimits
from translane_server.settings import ServerSettings

# Default limit of source and target lengths [tokens]. A larger capacity of the rows costs memory, and space in the
# processor's caches, even if all sentences are short.
_DEFAULT_MAX_TOKENS = 256


def limits_of(settings: ServerSettings, manifest: Manifest) -> RequestLimits:
    """The limits of requests to a model.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    return RequestLimits(
        settings.texts_per_request, settings.sentences_waiting, token_limits(settings, manifest), settings.beam_limit
    )


def token_limits(settings: ServerSettings, manifest: Manifest) -> TokenLimits:
    """The limits that both `settings` and the model allow.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    source = _limit("--max-source-tokens", settings.max_source_tokens, manifest.limits.source_tokens)
    target = _limit("--max-target-tokens", settings.max_target_tokens, manifest.limits.target_tokens)
    return TokenLimits(source, target, min(manifest.decoding_defaults.max_length, target))


def _limit(flag: str, asked: int | None, possible: int) -> int:
    if asked is None:
        return min(possible, _DEFAULT_MAX_TOKENS)
    if asked > possible:
        raise SettingsError(f"{flag} is {asked}, and the model takes {possible} at most")
    return asked
