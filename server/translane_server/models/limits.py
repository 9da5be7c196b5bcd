"""The limits of requests to a model: what both the settings and the model allow."""

from __future__ import annotations

from translane_server.bundle.manifest import Manifest, SearchDefaults
from translane_server.core.errors import SettingsError
from translane_server.settings.server_settings import ServerSettings
from translane_server.translation.limits import RequestLimits, TokenLimits

# Default limit of source and target lengths [tokens]. A larger capacity of the rows costs memory, and space in the
# processor's caches, even if all sentences are short.
_DEFAULT_MAX_TOKENS = 256


def limits_of(settings: ServerSettings, manifest: Manifest) -> RequestLimits:
    """The limits of requests to a model, and its search defaults.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    return RequestLimits(
        settings.max_request_texts,
        settings.max_queue_size,
        token_limits(settings, manifest),
        settings.beam_limit,
        _search(settings, manifest),
    )


def token_limits(settings: ServerSettings, manifest: Manifest) -> TokenLimits:
    """The limits that both `settings` and the model allow.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    source = _limit("--max-source-tokens", settings.max_source_tokens, manifest.limits.source_tokens)
    target = _limit("--max-target-tokens", settings.max_target_tokens, manifest.limits.target_tokens)
    default = min(manifest.decoding_defaults.max_length, target)
    return TokenLimits(source, target, default, min(_search(settings, manifest).min_length or 0, default))


def _search(settings: ServerSettings, manifest: Manifest) -> SearchDefaults:
    return manifest.decoding_defaults.search if settings.decoding_defaults else SearchDefaults()


def _limit(flag: str, asked: int | None, possible: int) -> int:
    if asked is None:
        return min(possible, _DEFAULT_MAX_TOKENS)
    if asked > possible:
        raise SettingsError(f"{flag} is {asked}, and the model takes {possible} at most")
    return asked
