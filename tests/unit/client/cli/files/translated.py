"""Files as they are translated, without a server: each text becomes what a function makes of it."""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable

from translane.results import Hypothesis, Translation
from translane_client.cli.files.kinds import KINDS, Settings
from translane_client.cli.formats import TranslationFormat

_NOTHING = ("json", "nbest", "num_hypotheses", "scores", "quality", "tokens", "alignment")


def same(text: str) -> str:
    return text


def read(kind: str, data: bytes, **settings):
    """The parts of a file, which together are the file."""
    form = TranslationFormat(argparse.Namespace(**dict.fromkeys(_NOTHING)))
    parts = list(KINDS[kind].parts(io.BytesIO(data), "f", Settings(form, **settings)))
    assert b"".join(part.raw for part in parts) == data
    return parts


def texts(kind: str, data: bytes, **settings) -> list[str]:
    return [text for part in read(kind, data, **settings) for text in part.texts]


def translated(kind: str, data: bytes, translate: Callable[[str], str] = str.upper, **settings) -> bytes:
    return b"".join(
        part.render([Translation((Hypothesis(translate(text), None),), 1) for text in part.texts])
        for part in read(kind, data, **settings)
    )
