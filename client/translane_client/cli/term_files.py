"""Files of terms: each line is a source phrase and the target phrase that its translation has to hold."""

from __future__ import annotations

from pathlib import Path

from translane_client.cli.text_files import FileError, opened, pair_of, texts_of


def read_terms(path: Path) -> list[tuple[str, str]]:
    """The terms of a UTF-8 file: pairs of a source phrase and its target phrase.

    A line holds a source phrase, a tab and a target phrase. Blank lines, lines that begin with #, and spaces around a
    phrase are left out.

    Raises:
        FileError: the file cannot be read, or a line holds no term; the message names the file and the line.
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
