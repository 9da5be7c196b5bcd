"""Where bundles from URLs are kept without the setting `model_cache`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from translane_server.settings import ServerSettings

_BELOW = Path("translane") / "models"


def default_cache(environ: Mapping[str, str]) -> Path:
    """Return the folder of downloaded bundles within the user's cache folder.

    The user's cache folder is `XDG_CACHE_HOME` if that is absolute, else `~/.cache`:
    https://specifications.freedesktop.org/basedir-spec/.

    Args:
        environ: environment variables.
    """
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache")) / _BELOW


def with_cache(settings: ServerSettings, environ: Mapping[str, str]) -> ServerSettings:
    """Return the settings, whose `model_cache` is the default one if there is none."""
    return settings.model_copy(update={"model_cache": settings.model_cache or default_cache(environ)})
