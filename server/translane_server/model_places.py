"""Where models are: the folder of a model, and the name under which it is served."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from translane_server.manifest import LONGEST_MODEL_NAME, MODEL_NAME


@dataclass(frozen=True)
class ModelPlace:
    """The folder of a model, and the model's name. Without a name, the model has the name of its manifest."""

    folder: Path
    name: str = ""


def is_model_name(text: str) -> bool:
    """Whether a model may have this name: letters, digits, `.`, `_` and `-`, 100 characters at most."""
    return len(text) <= LONGEST_MODEL_NAME and re.fullmatch(MODEL_NAME, text) is not None


def read_places(value: Any) -> Any:
    """Read FOLDER and NAME=FOLDER. A single value is a list of one; an empty one is none."""
    values = [value] if isinstance(value, str | Path) else value
    if not isinstance(values, list | tuple):
        return values
    return tuple([_place(each) if isinstance(each, str | Path) else each for each in values if each != ""])


def _place(text: str | Path) -> ModelPlace:
    if isinstance(text, Path):
        return ModelPlace(text)
    if named := re.match(f"({MODEL_NAME})=", text):
        if not is_model_name(named[1]):
            raise ValueError(f"a model's name has at most {LONGEST_MODEL_NAME} characters")
        return ModelPlace(Path(text[named.end() :]), named[1])
    return ModelPlace(Path(text))
