"""The settings in a checkpoint's files; a value is checked when a reader asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from translane_export.core.errors import ExportError
from translane_export.model.config import Activation
from translane_server.bundle.manifest import MOST_PIECES
from translane_server.core.terminal import shown

_LARGEST = MOST_PIECES  # of all sizes, a vocabulary's is the largest


class ModelSettings:
    """Settings by name.

    A value that is missing or of the wrong type is an ExportError at once. What is not supported is noted, so that one
    sentence names all of it: that of `check_supported`, or of the first value that is wrong.

    ``path`` is the first of the files. Where files differ, the later one counts.
    """

    def __init__(self, files: Mapping[Path, Mapping[str, Any]]) -> None:
        self.files = files
        self.path = next(iter(files))
        said = {path: {name: v for name, v in content.items() if not _is_unset(v)} for path, content in files.items()}
        self.values = {name: value for content in said.values() for name, value in content.items()}
        self._origins = {name: path for path, content in said.items() for name in content}
        self._problems: dict[Path, list[str]] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value as it is; `default` where there is none."""
        return self.values.get(name, default)

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number, alone or as the only one of a list."""
        value = self.get(name, default)
        if isinstance(value, list) and len(value) == 1:  # eos_token_id may be a list
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
            raise self.wrong(name, value, f"a whole number of at most {_LARGEST:,}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise self.wrong(name, value, f"a number of at most {_LARGEST:,}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def items(self, name: str) -> list[Any]:
        """A list; empty where there is none."""
        value = self.get(name, [])
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def choice(self, name: str, supported: Sequence[Any], default: Any = None) -> Any:
        """One of the values that are supported. Another one is noted, and the first of them stands in for it."""
        value = self.get(name, default)
        if value is None:
            raise self.wrong(name, value, "a name")
        if value in supported:
            return value
        which = f"{', '.join(map(str, supported))} {'are' if len(supported) > 1 else 'is'}"
        self.unsupported(name, f"{name} is {shown(value)}, and only {which} supported")
        return supported[0]

    def activation(self, name: str, known: Mapping[str, Activation], default: str | None = None) -> Activation:
        """The activation function that a name stands for."""
        return known[self.choice(name, tuple(known), default)]

    def same_whole(self, encoder: str, decoder: str) -> int:
        """A whole number that two settings share, the encoder's and the decoder's."""
        first, second = self.whole(encoder), self.whole(decoder)
        if first != second:
            self.unsupported(
                encoder, f"{encoder} is {first} and {decoder} is {second}, and that they differ is not supported"
            )
        return first

    def heads(self, name: str, heads: int, width: int) -> int:
        """The number of heads, which has to divide the model's `width`."""
        if heads > 0 and width % heads:
            self.unsupported(name, f"{name} is {heads}, which does not divide the model's size of {width}")
        return heads

    def refuse(self, names: Iterable[str]) -> None:
        """Note those of these settings that are on."""
        for name in names:
            if value := self.get(name):
                self.unsupported(name, f"{name} is {shown(value)}, which is not supported")

    def unsupported(self, name: str, problem: str) -> None:
        """Note a problem of the setting `name`."""
        self._problems.setdefault(self._origin(name), []).append(problem)

    def check_supported(self) -> None:
        """Refuse the model if anything has been noted. To be called before anything follows from the settings."""
        if self._problems:
            raise self._error()

    def wrong(self, name: str, value: Any, wanted: str) -> ExportError:
        """What to raise about a value; it also says what has been noted."""
        problem = f"the setting {name} is missing" if value is None else f"{name} is {shown(value)}, not {wanted}"
        self._problems.setdefault(self.path if value is None else self._origin(name), []).append(problem)
        return self._error()

    def _origin(self, name: str) -> Path:
        """The file that the value of `name` is from."""
        return self._origins.get(name, self.path)

    def _error(self) -> ExportError:
        return ExportError("; ".join(f"{path}: {'; '.join(found)}" for path, found in self._problems.items()))


def _is_unset(value: Any) -> bool:
    """Whether a value is unset. omegaconf writes ??? for a missing value and ${…} for a reference to another one."""
    return value is None or (isinstance(value, str) and (value == "???" or value.startswith("${")))
