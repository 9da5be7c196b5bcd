"""Pictures are files of their format, with pieces as text that a viewer's fonts draw."""

from xml.etree import ElementTree

import numpy as np
import pytest

from translane_export.explain.attention import AttentionWeights
from translane_export.explain.labels import choose_fonts
from translane_export.explain.pictures import MOST_HEADS, MOST_LAYERS, Painter
from translane_export.explain.positions import PositionTable

PIECES = ("▁我有", "<script>alert(1)</script>", "$x_1$", "&amp;", "</s>")


def weights(layers=2, heads=2, rows=PIECES, columns=PIECES):
    drawn = np.random.default_rng(0).random((layers, heads, len(rows), len(columns)), np.float32)
    return AttentionWeights("cross", "Cross-attention", "row", "column", rows, columns, drawn)


def words(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def painter(form):
    return Painter(form, choose_fonts(PIECES))


def test_an_svg_has_the_pieces_as_text():
    svg = painter("svg").attention(weights())
    shown = words(svg)
    for piece in ("▁我有", "<script>alert(1…", "$x_1$", "&amp;"):
        assert shown.count(piece) == 4, piece  # along two panels, on both sides
    assert {"head 0", "head 1", "layer 0", "layer 1"} <= set(shown)
    assert not list(ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}script"))
    assert svg == painter("svg").attention(weights())  # the same picture is the same file


def test_a_png_is_one():
    assert painter("png").attention(weights()).startswith(b"\x89PNG\r\n")


def test_only_so_many_layers_and_heads_are_drawn():
    shown = set(words(painter("svg").attention(weights(MOST_LAYERS + 1, MOST_HEADS + 1, PIECES[:1], PIECES[:1]))))
    assert {f"layer {MOST_LAYERS - 1}", f"head {MOST_HEADS - 1}"} <= shown
    assert not {f"layer {MOST_LAYERS}", f"head {MOST_HEADS}"} & shown


def test_pieces_without_room_are_left_out():
    many = tuple(f"p{number}" for number in range(900))
    shown = words(painter("svg").attention(weights(1, 1, many, many)))
    assert not set(many) & set(shown)
    assert "Cross-attention: white is 0, dark blue is 1; the page names the pieces" in shown


@pytest.mark.parametrize("form", ["svg", "png"])
def test_positions_and_operators(findings, form):
    table = PositionTable("biases", "head", "distance", -3, np.zeros((1, 7), np.float32))
    for picture in (painter(form).positions((*findings.tables, table)), painter(form).operators(findings.graphs)):
        assert picture.startswith(b"\x89PNG" if form == "png" else b"<?xml")
