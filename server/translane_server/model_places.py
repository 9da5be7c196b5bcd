"""Where models are: the folder or the URL of a model, and the name under which it is served."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from translane_server.manifest import LONGEST_MODEL_NAME, MODEL_NAME
from translane_server.model_urls import ModelUrl, is_url
from translane_server.settings_loader import UNQUOTED


@dataclass(frozen=True)
class ModelPlace:
    """The folder of a model, and the model's name. Without a name, the model has the name of its manifest."""

    folder: Path
    name: str = ""


@dataclass(frozen=True)
class RemotePlace:
    """The URL of a model, and the model's name. Without a name, the model has the name of its manifest."""

    url: ModelUrl
    name: str = ""


def is_model_name(text: str) -> bool:
    """Whether a model may have this name: letters, digits, `.`, `_` and `-`, 100 characters at most."""
    return len(text) <= LONGEST_MODEL_NAME and re.fullmatch(MODEL_NAME, text) is not None


def users_cache(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of downloaded models within the user's folder of caches, if the environment names that.

    https://specifications.freedesktop.org/basedir-spec/ has the variable.
    """
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return base / "translane" / "models" if base.is_absolute() else None


def read_places(value: Any) -> Any:
    """Read FOLDER, URL, NAME=FOLDER and NAME=URL. A single value is a list of one; an empty one is none."""
    values = [value] if isinstance(value, str | Path) else value
    if not isinstance(values, list | tuple):
        return values
    return tuple([_place(each) if isinstance(each, str | Path) else each for each in values if each != ""])


def read_folder(value: Any) -> Any:
    """Refuse a URL where only a folder may be, before any message about the folder quotes the URL's password."""
    if isinstance(value, str) and "://" in value:  # also NAME=URL
        raise PydanticCustomError(UNQUOTED, "a folder is needed, not a URL")
    return value


def _place(text: str | Path) -> ModelPlace | RemotePlace:
    if isinstance(text, Path):
        return ModelPlace(text)
    name = ""
    if named := re.match(f"({MODEL_NAME})=", text):
        text, name = text[named.end() :], named[1]
    try:
        if name and not is_model_name(name):
            raise ValueError(f"a model's name has at most {LONGEST_MODEL_NAME} characters")
        return RemotePlace(ModelUrl.parse(text), name) if is_url(text) else ModelPlace(Path(text), name)
    except ValueError as error:  # whose input may hold the password of a URL
        raise PydanticCustomError(UNQUOTED, "{problem}", {"problem": str(error)}) from None
