"""Reads checkpoints whose pickles hold more than tensors, without running any of what they name.

fairseq and OpenNMT-py save their settings beside the weights as they are in memory: an ``argparse.Namespace``, an
omegaconf tree, torchtext fields. A pickle names the classes of such objects, and whoever loads it imports them and
calls what it names; that is how a pickle runs code. Here it cannot:

- ``torch.load(weights_only=True)`` looks each name up in a table, imports nothing, and refuses what is not there. The
  table has what PyTorch itself needs to build tensors.
- Beforehand the file's opcodes are read as data, for the names they hold. Names of the packages below are entered into
  the table, each as a `Record` made on the spot: a class that keeps the arguments and the state which the pickle gives
  it, as they are, and does nothing else. The packages themselves, installed or not, are never imported, and none of
  these names stands for what it names. CPython before 3.11.4 pickles a member of an enumeration as a call of `getattr`;
  that name stands for `_member`, which gets nothing from anywhere.

So whatever a file holds, PyTorch's rebuilding of tensors and these records are all that is called. `plain` makes
dictionaries, lists and numbers of the records that settings are made of.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import warnings
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import PYTORCH, UNREADABLE, broken_file, unreadable_file
from translane_server.core.files import check_regular, open_regular
from translane_server.core.terminal import printable

# What settings and vocabularies are made of.
_PACKAGES = frozenset({"argparse", "fairseq", "omegaconf", "onmt", "torchtext", "typing"})
_TYPES = frozenset({"bool", "bytes", "dict", "float", "int", "list", "object", "str", "tuple"})
_NAMES = frozenset(
    {"builtins.getattr", "collections.defaultdict", "functools.partial", "pathlib.Path", "pathlib.PosixPath"}
    | {f"builtins.{name}" for name in _TYPES}
)
_ENUMERATING = frozenset({"fairseq", "omegaconf"})  # those of the packages whose settings have enumerations
_LEGACY_PICKLES = 4  # PyTorch before 1.6 wrote a magic number, a version, sizes, and then the content, one by one
_LARGEST_PICKLE = 1 << 26  # bytes of a zip archive's pickle, which may be compressed; tensors are beside it
_DEEPEST = 32  # settings are a few levels deep; a file may as well contain itself


class Record:
    """What a pickle says of an object. Each class that a pickle names is a subclass of its own."""

    pickled_name = ""  # module and class, as the pickle names them
    args: tuple[Any, ...]  # what the class was called with
    state: Any  # what __setstate__ was given; None: it was not called

    def __new__(cls, *args: Any) -> Record:
        """Keep the arguments. Pickles call this with __init__ (REDUCE) or without (NEWOBJ)."""
        record = super().__new__(cls)
        record.args, record.state = args, None
        return record

    def __init__(self, *args: Any) -> None:
        """Do nothing: see `__new__`."""

    def __setstate__(self, state: Any) -> None:
        """Keep the state; without this method a pickle would set attributes."""
        self.state = state


def read_inert(path: Path) -> dict[str, Any]:
    """Read what ``torch.save`` wrote: tensors and plain values, with a `Record` for each other object.

    The tensors of PyTorch's zip files are memory-mapped, so those that nobody looks at (an optimizer's) take no memory.

    Raises:
        ExportError: the file is missing, damaged, no dictionary, or names anything but what settings are made of.
    """
    try:
        names = _names_in_file(path)
        content = _load(path, [(_stand_in(name), name) for name in sorted(names) if _is_of_settings(name)])
    except pickle.UnpicklingError as error:
        if named := re.search(r"GLOBAL (\S+)", str(error)):
            raise ExportError(f"{path}: it is refused, as loading it would run {printable(named[1], 100)}") from None
        raise broken_file(path, PYTORCH, "it is refused, as it is more than tensors and settings") from None
    except UNREADABLE as error:
        raise unreadable_file(path, PYTORCH, error) from None
    if not isinstance(content, dict):
        raise ExportError(f"{path}: it holds a {type(content).__name__}, and a checkpoint is a dictionary")
    return content


def read_plain(path: Path) -> Any:
    """Read what ``torch.save`` wrote, where that is tensors and plain values alone; see `read_inert` about memory.

    Raises:
        ExportError: the file is missing, damaged, or holds anything else.
    """
    try:
        return _load(path)
    except pickle.UnpicklingError:
        raise broken_file(path, PYTORCH, "it holds more than tensors and plain values, which is not read") from None
    except UNREADABLE as error:
        raise unreadable_file(path, PYTORCH, error) from None


def plain(value: Any, path: Path, depth: int = 0) -> Any:
    """Make dictionaries, lists and scalars of the records in settings: namespaces, omegaconf nodes, enumerations.

    References of omegaconf to other settings ("${model.encoder.embed_dim}") stay the texts they are.

    Raises:
        ExportError: they are nested without end, in the file `path`.
    """
    if depth > _DEEPEST:
        raise ExportError(f"{path}: its settings are nested without end")
    if isinstance(value, Record):
        state = value.state
        if value.pickled_name == "argparse.Namespace":
            return plain(state or {}, path, depth + 1)
        if isinstance(state, dict):
            return plain(
                state.get("_content", state.get("_val")), path, depth + 1
            )  # of omegaconf's containers and nodes
        return plain(value.args[0], path, depth + 1) if value.args else None  # an enumeration's value
    if isinstance(value, dict):
        return {key: plain(item, path, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, path, depth + 1) for item in value]
    return value


def _is_of_settings(name: str) -> bool:
    return name in _NAMES or name.partition(".")[0] in _PACKAGES


def _stand_in(name: str) -> Callable[..., Any]:
    """What the unpickler finds under `name`."""
    if name == "collections.defaultdict":
        return _dictionary  # the unpickler adds items to nothing but dictionaries
    if name == "builtins.getattr":
        return _member
    return type("Record", (Record,), {"pickled_name": name})


def _dictionary(*_factory: Any) -> dict[Any, Any]:
    return {}


def _member(enumeration: object, name: object, *more: object) -> Record:
    """Return what a pickle says of a member of an enumeration; its value is taken to be its name, as in fairseq's."""
    if (
        more
        or not (isinstance(enumeration, type) and issubclass(enumeration, Record))
        or enumeration.pickled_name.partition(".")[0] not in _ENUMERATING
        or not (isinstance(name, str) and name.isidentifier() and not name.startswith("_"))
    ):
        raise pickle.UnpicklingError("GLOBAL builtins.getattr")
    return enumeration(name)


def _load(path: Path, table: Sequence[Callable[..., Any] | tuple[Callable[..., Any], str]] = ()) -> Any:
    """Load a file, with the names in `table` beside PyTorch's own. Files from before PyTorch 1.6 are not mapped."""
    with torch.serialization.safe_globals(list(table)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the old kind of storages, which are read all the same
        check_regular(path)
        mapped = None
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _check_pickles(archive, path)
            mapped = True
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)


def _names_in_file(path: Path) -> set[str]:
    with open_regular(path) as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return set().union(*(_names(file) for _ in range(_LEGACY_PICKLES)))
        with zipfile.ZipFile(file) as archive:
            _check_pickles(archive, path)
            return set().union(*(_names(archive.read(name)) for name in _pickles(archive)))


def _pickles(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]


def _check_pickles(archive: zipfile.ZipFile, path: Path) -> None:
    for name in _pickles(archive):
        if (size := archive.getinfo(name).file_size) > _LARGEST_PICKLE:
            raise ExportError(f"{path}: its pickle has {size:,} bytes, and at most {_LARGEST_PICKLE:,} are read")


def _names(stream: bytes | BinaryIO) -> set[str]:
    """The classes and functions that one pickle names, by the names they have in Python 3."""
    names = set()
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "GLOBAL":
            module, _, name = str(argument).partition(" ")
            module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
            names.add(f"{module}.{name}")
    return names
