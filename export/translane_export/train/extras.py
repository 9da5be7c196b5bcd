"""Packages that a flag needs and the extra `export` does not install."""

from __future__ import annotations

from importlib.util import find_spec

from translane_server.core.errors import SettingsError


def require(package: str, *, extra: str, flag: str) -> None:
    """Make sure that `package` is installed, before work is done that `flag` needs it for.

    Raises:
        SettingsError: the package is missing; the message names the flag and the extra.
    """
    if find_spec(package) is None:
        raise SettingsError(f"{flag}: {package} is not installed; pip install 'translane[{extra}]' installs it")
