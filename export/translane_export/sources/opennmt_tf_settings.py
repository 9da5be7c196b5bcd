"""What the files beside a checkpoint of OpenNMT-tf say: its Python description, its YAML and its vocabularies.

The description is read as text and never run. The YAML is the user's own, with a block ``data``.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from translane_export.errors import ExportError
from translane_export.file_readers import is_there, read_text
from translane_export.model.config import Activation
from translane_export.sources.flat_yaml import read_settings
from translane_export.sources.word_lists import NumberedWords, SpecialWords, number_words
from translane_server.manifest import MOST_PIECES
from translane_server.printable import printable, shown

DESCRIPTION = "model_description.py"

_LONGEST_DESCRIPTION = 100_000  # characters
_DEFAULT_HEADS = 8
_HEADS = {  # of the catalog's Transformers (opennmt/models/catalog.py)
    "Transformer": 8,
    "TransformerBase": 8,
    "TransformerBaseRelative": 8,
    "TransformerBaseSharedEmbeddings": 8,
    "TransformerRelative": 8,
    "TransformerTiny": 2,
    "TransformerBig": 16,
    "TransformerBigRelative": 16,
    "TransformerBigSharedEmbeddings": 16,
    "ScalingNmtEnDe": 16,
    "ScalingNmtEnFr": 16,
}
_OF_CATALOG = ("get_model_from_catalog", "load_model_from_catalog")
_HEADS_PLACE = 4  # of num_heads among the arguments of Transformer
_ACTIVATIONS: dict[str, Activation] = {
    "tf.nn.relu": "relu",
    "tf.nn.gelu": "gelu",
    "layers.gelu": "gelu_tanh",
    "layers.common.gelu": "gelu_tanh",
    "tf.nn.silu": "silu",
    "tf.nn.swish": "silu",
}
_SPECIAL = SpecialWords(pad="<blank>")
_CONTROL = re.compile(r"\b(start|end)\s*:\s*(\w+)")
_TRUE = {"true", "yes", "on"}
_COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True)
class Description:
    """What no tensor says of a model: how many heads it has, and the activation of its feed-forward networks."""

    heads: int
    activation: Activation


@dataclass(frozen=True)
class DataSettings:
    """Where the vocabularies are, and whether symbols for the start and the end stand around sources."""

    source: Path
    target: Path
    source_start: bool
    source_end: bool


def read_description(path: Path) -> Description:
    """Return what a model_description.py says, which names a model of the catalog or makes a Transformer.

    Raises:
        ExportError: it is missing, is no Python, or does not say it in literals.
    """
    if not is_there(path):
        raise ExportError(
            f"{path}: the file is missing. OpenNMT-tf saves it beside checkpoints, and no tensor says how many heads"
            " attention has"
        )
    text = read_text(path)
    if len(text) > _LONGEST_DESCRIPTION:
        raise ExportError(f"{path}: it has {len(text):,} characters, and at most {_LONGEST_DESCRIPTION:,} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings that are none
            tree = ast.parse(text)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        names = {id(call): _dotted(call.func) for call in calls}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExportError(f"{path}: it is no Python file") from None
    for call in calls:
        if names[id(call)].rpartition(".")[2] in _OF_CATALOG and call.args:
            return Description(_catalog_heads(call.args[0], path), "relu")
    heads: set[int] = set()
    activations: set[Activation] = set()
    for call in calls:
        name = names[id(call)].rpartition(".")[2]
        if name in _HEADS or name == "__init__":
            heads.add(_heads(call, _HEADS.get(name, _DEFAULT_HEADS), path))
            activations.add(_activation(call, path))
    if len(heads) != 1 or len(activations) != 1:
        raise ExportError(f"{path}: it does not make one Transformer, nor name one of OpenNMT-tf's catalog")
    return Description(heads.pop(), activations.pop())


def _dotted(node: ast.expr) -> str:
    """The name that an expression is, such as ``tf.nn.relu``. Anything but names and attributes has no name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, *([node.id] if isinstance(node, ast.Name) else [])]))


def _catalog_heads(node: ast.expr, path: Path) -> int:
    name = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(name, str) or name not in _HEADS:
        raise ExportError(f"{path}: its model is {shown(name)}, and only {', '.join(_HEADS)} are supported")
    return _HEADS[name]


def _heads(call: ast.Call, default: int, path: Path) -> int:
    found = _argument(call, "num_heads", _HEADS_PLACE)
    if found is None:
        return default
    value = found.value if isinstance(found, ast.Constant) else None
    if type(value) is not int:
        raise ExportError(f"{path}: num_heads is not written as a number, and the file is not run")
    return value


def _activation(call: ast.Call, path: Path) -> Activation:
    found = _argument(call, "ffn_activation", None)
    if found is None:
        return "relu"
    name = re.sub(r"^(tensorflow\.|opennmt\.)", lambda match: "tf." if match[1][0] == "t" else "", _dotted(found))
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ExportError(f"{path}: ffn_activation is {printable(name, 60) or 'no name'}, and only {known} are read")
    return _ACTIVATIONS[name]


def _argument(call: ast.Call, name: str, place: int | None) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[place] if place is not None and len(call.args) > place else None


def read_data_settings(folder: Path) -> DataSettings:
    """Return what the folder's YAML file with a block ``data`` says, or else what the names of its files say.

    Raises:
        ExportError: there are several such files, or it is not clear which vocabulary is whose.
    """
    blocks = {
        path: block
        for path in sorted([*folder.glob("*.yml"), *folder.glob("*.yaml")])
        if (block := "\n".join(_block(read_text(path), "data")))
    }
    if len(blocks) > 1:
        raise ExportError(
            f"checkpoint {folder}: {' and '.join(path.name for path in blocks)} both have a block data; leave one"
        )
    if not blocks:
        return DataSettings(_named(folder, "source"), _named(folder, "target"), source_start=False, source_end=False)
    path, block = next(iter(blocks.items()))
    try:
        settings = read_settings(block)
    except ValueError as error:
        raise ExportError(f"{path}: in the block data, {error}") from None
    controls = "\n".join(_block(block, "source_sequence_controls"))
    marks = {name for name, value in _CONTROL.findall(controls) if value.lower() in _TRUE}
    source, target = (_vocabulary(settings, side, path) for side in ("source", "target"))
    return DataSettings(source, target, source_start="start" in marks, source_end="end" in marks)


def _vocabulary(settings: Mapping[str, Any], side: str, path: Path) -> Path:
    name = settings.get(f"{side}_vocabulary")
    if not isinstance(name, str):
        raise ExportError(f"{path}: data has no {side}_vocabulary that is one file")
    return path.parent / Path(name).name


def _block(text: str, name: str) -> Iterator[str]:
    """The lines of a block of YAML without their indentation, or what stands on the line of its name."""
    inside, indent = False, 0
    for whole in text.split("\n"):
        line = _COMMENT.sub("", whole)
        if inside and line.strip():
            if line[0] not in " \t":
                return
            indent = indent or len(line) - len(line.lstrip())
            yield line[min(indent, len(line) - len(line.lstrip())) :]
        elif line.startswith(f"{name}:"):
            inside = True
            if rest := line.removeprefix(f"{name}:").strip():
                yield rest


def _named(folder: Path, side: str) -> Path:
    found = sorted(path for path in folder.iterdir() if re.search(r"vocab", path.name) and path.is_file())
    if len(found) == 1:
        return found[0]
    words = {"source", "src"} if side == "source" else {"target", "tgt", "trg"}
    mine = [path for path in found if words & set(re.split(r"[._-]", path.name))]
    if len(mine) != 1:
        raise ExportError(
            f"checkpoint {folder}: it is not clear which file is the {side} side's vocabulary. A YAML file may say so"
            f" as data.{side}_vocabulary, or the names {' and '.join(sorted(words))} with vocab"
        )
    return mine[0]


def read_vocabulary(path: Path) -> NumberedWords:
    """Return the words of a vocabulary, a word on each line, and ``<unk>`` after them if it is not among them.

    Raises:
        ExportError: a special word is missing, or a word is there twice.
    """
    words = [line.rstrip("\r") for line in read_text(path).removesuffix("\n").split("\n")]
    if len(words) > MOST_PIECES:
        raise ExportError(f"{path}: it has {len(words):,} words, and at most {MOST_PIECES:,} are supported")
    if _SPECIAL.unk not in words:
        words.append(_SPECIAL.unk)
    try:
        return number_words(words, _SPECIAL, side="source")
    except ExportError as error:
        raise ExportError(f"{path}: {str(error).removeprefix('source_words: ')}") from None
