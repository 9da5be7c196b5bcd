"""Files of terms."""

from __future__ import annotations

from pathlib import Path

from translane_client.lines import FileError, opened, pair_of, texts_of


def read_terms(path: Path) -> list[tuple[str, str]]:
    """The terms of a UTF-8 file, one on each line: source, a tab, and what its translation has to hold.

    Blank lines and lines that begin with # are left out, and so are the spaces around a phrase.

    Raises:
        FileError: the file cannot be read, or a line holds no term; names the file and the line.
    """
    terms = []
    with opened(path) as file:
        for number, (text, _) in enumerate(texts_of(file, str(path)), start=1):
            if text.startswith("#") or not text.strip():
                continue
            place = f"{path}, line {number}"
            source, target = (side.strip() for side in pair_of(text, place))
            if not source or not target:
                raise FileError(f"{place}: the {'target' if source else 'source'} is empty")
            terms.append((source, target))
    return terms
