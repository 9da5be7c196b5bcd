"""Documents as they are translated, without a model: each text becomes what a function makes of it."""

import pickle
from collections.abc import Callable

from translane_server.text.documents import Document, parse

TYPES = {
    "txt": "text/plain",
    "html": "text/html",
    "md": "text/markdown",
    "xliff": "application/xliff+xml",
    "po": "text/x-gettext-translation",
    "srt": "application/x-subrip",
    "vtt": "text/vtt",
}


def same(text: str) -> str:
    return text


def read(kind: str, data: bytes, *, replace: bool = False) -> Document:
    """The document, as it is after the way through another process."""
    document = pickle.loads(pickle.dumps(parse(data, TYPES[kind], replace_translations=replace)))
    assert isinstance(document, Document)
    return document


def texts(kind: str, data: bytes, *, replace: bool = False) -> list[str]:
    return [text.text for text in read(kind, data, replace=replace).texts]


def translated(kind: str, data: bytes, translate: Callable[[str], str] = str.upper, *, replace: bool = False) -> bytes:
    document = read(kind, data, replace=replace)
    return document.render([translate(text.text) for text in document.texts])
