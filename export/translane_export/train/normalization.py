"""Normalisation rules that live inside a SentencePiece model, so that whoever loads the model needs nothing else.

SentencePiece ships its own rules (`nmt_nfkc` and friends) in compiled form only. A name ending in ``_t2s`` is one of
these rules followed by Traditional → Simplified Chinese, character by character: the shipped rule is read back from
its compiled form, every result is simplified, and every Traditional character that the rule leaves alone gets a line
of its own.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import opencc
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from translane_export.train.settings import SIMPLIFYING_SUFFIX

_IDEOGRAPH_RANGES = ((0x3400, 0xA000), (0xF900, 0xFB00), (0x20000, 0x32400))

# OpenCC keeps these apart, or decides by the phrase around them; in running text they are spellings of one word.
_SAME_WORD = {
    "著": "着",
    "妳": "你",
    "牠": "它",
    "祂": "他",
    "瞭": "了",
    "藉": "借",
    "覆": "复",
    "鍊": "链",
    "甚": "什",
}


def rules(name: str) -> dict[str, str]:
    """Return the replacements of a rule, one of `NORMALIZATIONS`: the longest key wins, as in SentencePiece."""
    if not name.endswith(SIMPLIFYING_SUFFIX):
        return _built_in_rules(name)
    simplified = _simplified_characters()
    letters = str.maketrans(simplified)
    composed = {key: value.translate(letters) for key, value in _built_in_rules(name.removesuffix("_t2s")).items()}
    for traditional, simple in simplified.items():
        composed.setdefault(traditional, simple)
    return composed


def rules_tsv(name: str) -> str:
    """Return the rule `name` in the format of SentencePiece's `normalization_rule_tsv`: code points in hexadecimal."""
    return "".join(f"{_code_points(key)}\t{_code_points(value)}\n" for key, value in sorted(rules(name).items()))


def _code_points(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)


@lru_cache(maxsize=1)
def _simplified_characters() -> dict[str, str]:
    """Every Traditional character and its Simplified form, where they differ."""
    characters = [chr(code) for first, end in _IDEOGRAPH_RANGES for code in range(first, end)]
    # A line per character keeps OpenCC's phrase tables out of it.
    simple = opencc.OpenCC("t2s").convert("\n".join(characters)).split("\n")
    table = {before: after for before, after in zip(characters, simple, strict=True) if before != after}
    table.update(_SAME_WORD)
    # A Simplified form that is itself folded into another (e.g. by _SAME_WORD) goes all the way.
    letters = str.maketrans(table)
    return {before: after.translate(letters) for before, after in table.items()}


def _built_in_rules(name: str) -> dict[str, str]:
    if name == "identity":
        return {}
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name=name)
    model = sentencepiece_model_pb2.ModelProto.FromString(normalizer.serialized_model_proto())
    return _decompile(model.normalizer_spec.precompiled_charsmap)


def _decompile(charsmap: bytes) -> dict[str, str]:
    """Read a compiled rule: a Darts-clone double-array trie over UTF-8 whose values point into a block of C strings.

    The layout of a unit is darts.h's `DoubleArrayUnit`: bit 8 says that a leaf follows, the low byte and bit 31 are
    the label, bits 10 and up the offset to the children (scaled by 256 where bit 9 is set), and a leaf's low 31 bits
    its value.
    """
    (trie_bytes,) = struct.unpack_from("<I", charsmap)
    units = np.frombuffer(charsmap, dtype="<u4", count=trie_bytes // 4, offset=4).astype(np.int64)
    strings = charsmap[4 + trie_bytes :]
    labels: npt.NDArray[np.int64] = np.arange(1, 256, dtype=np.int64)
    found: dict[str, str] = {}
    pending: list[tuple[int, bytes]] = [(_offset(int(units[0])), b"")]
    while pending:
        base, prefix = pending.pop()
        children = base ^ labels
        inside = children < len(units)
        matches = labels[inside][(units[children[inside]] & 0x800000FF) == labels[inside]]
        for label in matches.tolist():
            position = base ^ label
            unit = int(units[position])
            child_base = position ^ _offset(unit)
            key = prefix + bytes((label,))
            if unit >> 8 & 1:
                start = int(units[child_base]) & 0x7FFFFFFF
                found[key.decode()] = strings[start : strings.index(b"\0", start)].decode()
            pending.append((child_base, key))
    return found


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)
