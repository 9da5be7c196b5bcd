"""Makes hostile files of good ones: cut off, flipped, of other types, far too large, nested without end.

All choices come from a seeded generator, so a case is made again from its seed.
"""

import copy
import io
import json
import zipfile
from collections.abc import Iterator
from random import Random
from typing import Any

DEPTH = 200_000
"""Levels of nested JSON: far beyond any limit of recursion."""

_NESTED = "«nested»"  # stands for text that json.dumps cannot write
_HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 255),
    *(2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**9, 10**10, 10**12, 10**30, 10**400, -(10**12)),
    *(0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "x" * 100_000, "\x00", "\x1b[31mred\x07", "\r\n\u2028", "\ud800", "../../../etc/passwd", "/dev/zero"),
    *([], {}, [[]], [None] * 3, [{}], {"": None}, {"a": {"b": []}}, ["x"], [0], list(range(1000)), [10**12] * 4),
    _NESTED,
)


def json_mutant(pick: Random, content: bytes) -> bytes:
    """Return a JSON file with something changed: most often one value, sometimes the bytes."""
    if pick.random() < 0.15:
        return bytes_mutant(pick, content)
    value = copy.deepcopy(json.loads(content))
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        value = _changed(pick, value)
    nested = pick.choice(("[" * DEPTH, "[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH + "0" + "}" * DEPTH))
    text = json.dumps(value, ensure_ascii=True).replace(json.dumps(_NESTED), nested)
    return text.encode()


def _changed(pick: Random, value: Any) -> Any:
    places = list(_places(value))
    if not places or pick.random() < 0.02:
        return pick.choice(_HOSTILE)
    # Nested containers have most of the places, so the outer ones are picked as often as all the others together.
    outer = [place for place in places if place[0] is value]
    holder, key = pick.choice(outer if outer and pick.random() < 0.4 else places)
    kind = pick.random()
    if kind < 0.75:
        holder[key] = pick.choice(_HOSTILE)
    elif kind < 0.85:
        del holder[key]
    elif kind < 0.95 and isinstance(holder, dict):
        holder[pick.choice(("\x1b]0;title\x07", "\x00", "", "x" * 10_000, "../x", "constructor"))] = holder.pop(key)
    else:
        other, place = pick.choice(places)
        holder[key] = copy.deepcopy(other[place])
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place of a value in a dictionary or a list; of long containers only some."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys[:40]:
        yield value, key
        yield from _places(value[key])


def bytes_mutant(pick: Random, content: bytes) -> bytes:
    """Return a file that is cut off, or has some bytes flipped, put in, taken out, repeated or zeroed."""
    changed = bytearray(content)
    for _ in range(pick.choice((1, 1, 2, 4, 8))):
        at = pick.randrange(len(changed) + 1) if pick.random() < 0.5 else min(len(changed), pick.randrange(64))
        match pick.randrange(7):
            case 0:
                del changed[at:]
            case 1 | 2 if at < len(changed):
                changed[at] ^= 1 << pick.randrange(8)
            case 3:
                changed[at:at] = pick.choice((b"\xff" * 8, b"\x00" * 8, b"\x80", b"[" * 5000, b"\x1b[31m"))
            case 4:
                del changed[at : at + pick.randrange(1, 64)]
            case 5:
                changed[at : at + 8] = pick.choice((b"\xff" * 8, b"\x00" * 8, b"\x7f" + b"\xff" * 7))
            case _:
                changed[at:at] = changed[at : at + pick.randrange(1, 512)]
    return bytes(changed)


def safetensors_mutant(pick: Random, content: bytes) -> bytes:
    """Return a safetensors file whose header is changed, and framed again; sometimes the bytes are."""
    if pick.random() < 0.25:
        return bytes_mutant(pick, content)
    length = int.from_bytes(content[:8], "little")
    header = json_mutant(pick, content[8 : 8 + length])
    stated = len(header) if pick.random() < 0.9 else pick.choice((0, 1, 10**9, 10**12, 2**63, 2**64 - 1))
    return stated.to_bytes(8, "little") + header + content[8 + length :]


def pickle_mutant(pick: Random, content: bytes) -> bytes:
    """Return a file of PyTorch's with its pickle changed, inside a whole zip archive; sometimes the bytes are."""
    if pick.random() < 0.25 or not zipfile.is_zipfile(io.BytesIO(content)):
        return bytes_mutant(pick, content)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(made, "w") as other:
        for name in archive.namelist():
            part = archive.read(name)
            if name.endswith("data.pkl"):
                part = _pickle_changed(pick, part)
            other.writestr(name, part)
    return made.getvalue()


def _pickle_changed(pick: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(pick.choice((1, 1, 2, 3))):
        at = pick.randrange(2, len(changed))
        match pick.randrange(5):
            case 0:
                changed[at] ^= 1 << pick.randrange(8)
            case 1:  # a number of one, two or four bytes becomes a large one
                changed[at : at + 5] = b"J\xff\xff\xff\x7f"
            case 2:
                changed[at : at + 10] = b"\x8a\x08" + (10**12).to_bytes(8, "little")
            case 3:
                changed[at:at] = pick.choice((b"]" * 5000, b"(" * 5000, b"}" * 100, b"\x88", b"N"))
            case _:
                del changed[at : at + pick.randrange(1, 16)]
    return bytes(changed)


def mutant(pick: Random, name: str, content: bytes) -> bytes:
    """Return a hostile file in place of the good file `name`, by what its name says that it is."""
    if name.endswith(".json"):
        return json_mutant(pick, content)
    if name.endswith(".safetensors"):
        return safetensors_mutant(pick, content)
    if name.endswith((".bin", ".pt")):
        return pickle_mutant(pick, content)
    return bytes_mutant(pick, content)
