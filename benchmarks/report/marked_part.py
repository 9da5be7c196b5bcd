"""Parts of pages that programs write, between two lines of their own."""

from __future__ import annotations

from pathlib import Path


def replace_between(page: str, begin: str, end: str, lines: str) -> str:
    """The page with other lines between the lines `begin` and `end`.

    Raises:
        ValueError: the page has no such lines.
    """
    before, found, rest = page.partition(f"{begin}\n")
    _, closed, after = rest.partition(f"{end}\n")
    if not (found and closed):
        raise ValueError(f"there are no lines {begin!r} and {end!r}")
    return f"{before}{begin}\n\n{lines.strip()}\n\n{end}\n{after}"


def write_part(path: Path, name: str, command: str, lines: str) -> None:
    """Write the part `name` of a page, which `command` makes.

    Raises:
        ValueError: the page has no lines that begin and end this part.
    """
    begin = f"<!-- {name}: begin; `{command}` writes what is between these lines -->"
    page = replace_between(path.read_text(encoding="utf-8"), begin, f"<!-- {name}: end -->", lines)
    path.write_text(page, encoding="utf-8")
