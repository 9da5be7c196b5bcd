"""Pieces as labels of pictures, in fonts that have their letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib import font_manager

from translane_server.printable import printable

_LONGEST = 16  # characters of a label
_MOST_FONTS = 2000  # fonts that are looked into
_DEFAULT = "DejaVu Sans"
_NO_LETTERS = "Last Resort"  # its glyphs are boxes that say to which script a letter belongs


@dataclass(frozen=True)
class Fonts:
    """The fonts to draw labels with, and the characters that none of them has."""

    families: tuple[str, ...]
    missing: frozenset[str]

    def label(self, piece: str) -> str:
        """Return `piece` as it can be drawn: short, on one line, with code points for missing characters."""
        short = shorten(piece)
        return "".join(f"U+{ord(c):04X} " if c in self.missing else c for c in short).rstrip()


def shorten(piece: str) -> str:
    """Return a piece on one line, without the end of a long one."""
    text = printable(piece)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def choose_fonts(pieces: Iterable[str]) -> Fonts:
    """Return the default font, and those of the system's that have characters which it lacks."""
    wanted = {character for piece in pieces for character in shorten(piece)}
    default = next(font for font in font_manager.fontManager.ttflist if font.name == _DEFAULT)
    families, missing = [_DEFAULT], wanted - _characters(default.fname, wanted)
    for font in _others() if missing else ():
        if found := _characters(font.fname, missing):
            families.append(font.name)
            missing -= found
        if not missing:
            break
    return Fonts(tuple(families), frozenset(missing))


def _others() -> Sequence[font_manager.FontEntry]:
    fonts = [font for font in font_manager.fontManager.ttflist if not font.name.startswith((_DEFAULT, _NO_LETTERS))]
    return sorted(fonts[:_MOST_FONTS], key=lambda font: (font.weight != 400, font.style != "normal", font.name))


def _characters(path: str, wanted: set[str]) -> set[str]:
    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):  # the system's list names a font that is gone, or that is broken
        return set()
    return {character for character in wanted if font.get_char_index(ord(character))}
