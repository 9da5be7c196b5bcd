"""Settings that another project pickled, checked as they are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from translane_export.errors import ExportError
from translane_export.model.config import Activation


class PickledSettings:
    """Settings by name, of the checkpoint file at `path`. The methods raise ExportError naming file and setting."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self._values = values
        self.path = path

    def get(self, name: str, default: Any = None) -> Any:
        """The value as it is; `default` where there is none, or where omegaconf never got one."""
        value = self._values.get(name)
        unset = value is None or value == "???" or (isinstance(value, str) and value.startswith("${"))
        return default if unset else value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, value, "a whole number")
        return value

    def number(self, name: str, default: float) -> float:
        """A number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; false where it is not set."""
        value = self.get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def same_whole(self, encoder: str, decoder: str) -> int:
        """A whole number that is the encoder's and the decoder's."""
        first, second = self.whole(encoder), self.whole(decoder)
        if first != second:
            raise ExportError(
                f"{self.path}: {encoder} is {first} and {decoder} is {second}, and that they differ is not supported"
            )
        return first

    def check_heads(self, name: str, heads: int, width: int) -> int:
        """Return the number of heads that `name` says, once it is seen to divide the model's `width`."""
        if heads > 0 and width % heads:
            raise ExportError(f"{self.path}: {name} is {heads}, which does not divide the model's size of {width}")
        return heads

    def activation(self, name: str, known: Mapping[str, Activation]) -> Activation:
        """The activation function that is meant; "relu" where none is named."""
        value = self.get(name, "relu")
        if value not in known:
            raise ExportError(f"{self.path}: {name} is {value!r}, and only {', '.join(known)} are supported")
        return known[value]

    def refuse(self, names: Iterable[str]) -> None:
        """Refuse the model if any of these is set to anything but nothing."""
        for name in names:
            if value := self.get(name):
                raise ExportError(f"{self.path}: {name} is {value!r}, which is not supported")

    def _wrong(self, name: str, value: Any, wanted: str) -> ExportError:
        if value is None:
            return ExportError(f"{self.path}: its settings have no {name}")
        return ExportError(f"{self.path}: {name} is {value!r}, not {wanted}")
