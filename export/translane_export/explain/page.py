"""The page: one HTML file with everything in it, which asks the network for nothing.

Texts and pieces are anybody's. They are escaped in HTML, and in the JSON of the script, where "<" could end it; the
script writes them as text alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import numpy as np

from translane_export.explain.operators import GraphTime
from translane_export.explain.report import Findings
from translane_export.explain.tensors import SYMBOLS, AttentionWeights, PositionTable, TensorStep
from translane_server.core.terminal import printable

_UNITS = 10_000  # of a weight of 1; page.js has the same number
_MOST_CHARACTERS = 2000  # of a text that is quoted
_HERE = Path(__file__).parent
# No script but the page's own, and no request.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'"


def make_page(findings: Findings) -> str:
    """Return the page as HTML. It draws attention and positions itself."""
    script = f"\n{_asset('page.js')}"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    title = f"{findings.manifest.name}: {printable(findings.translated.source.text, 60)}"
    sections = (
        _sentence(findings),
        _attention(findings.attention.kinds),
        _positions(findings),
        _operators(findings.graphs),
        _shapes(findings),
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(digest)}">
<title>{escape(title)}</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<h1>Inside {escape(findings.manifest.name)}</h1>
{"".join(sections)}
<script type="application/json" id="attention">{_data(findings.attention.kinds)}</script>
<script type="application/json" id="positions">{_tables(findings.tables)}</script>
<script>{script}</script>
</body>
</html>
"""


def _sentence(findings: Findings) -> str:
    translated = findings.translated
    rows = {
        "text": escape(translated.source.text),
        "pieces": _pieces(translated.source.pieces),
        "translation": escape(translated.text),
        "its pieces": _pieces(translated.chosen_pieces),
        "model": escape(findings.model),
        "check": escape(findings.agreement),
    }
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in rows.items())}</dl>\n"


def _attention(kinds: Sequence[AttentionWeights]) -> str:
    rows = "".join(f"<li>{escape(each.title)}: a row is a {escape(each.row_kind)}.</li>" for each in kinds)
    return f"""<h2>Attention</h2>
<p>Choose a kind, then a layer and a head; point at a cell for its number. The numbers of a
row sum to 1, or to less with softmax₁. A cell's colour grows with the square root of its number.</p>
<ul class="faint">{rows}</ul>
<noscript><p>The script of this page draws attention and positions.</p></noscript>
<div id="kinds"></div>
<div id="heads"></div>
<p id="readout" aria-live="polite"></p>
<div class="wide"><canvas id="matrix" tabindex="0" role="img" aria-label="attention weights"></canvas></div>
"""


def _positions(findings: Findings) -> str:
    shown = "".join(
        f"<h3>{escape(each.title)}</h3>\n"
        '<div class="wide"><canvas class="positions" role="img" aria-label="numbers by position"></canvas></div>\n'
        '<p class="faint"></p>\n'
        for each in findings.tables
    )
    return f"<h2>Positions</h2>\n<p>{escape(findings.positions)}</p>\n{shown}"


def _operators(graphs: Sequence[GraphTime]) -> str:
    tables = []
    for graph in graphs:
        rows = "".join(
            f"<tr><td>{escape(each.operator)}</td><td class=number>{each.nodes:g}</td>"
            f"<td class=number>{each.microseconds:,.1f}</td><td class=number>{each.share:.1%}</td>"
            f"<td class=bar><div style='width:{each.share:.1%}'></div></td></tr>"
            for each in graph.operators
        )
        tables.append(
            f"<h3>{escape(graph.graph)}</h3><p>{escape(graph.headline)}</p><div class=wide><table><tr><th>operator</th>"
            f"<th>nodes</th><th>time [µs]</th><th>share</th><th></th></tr>{rows}</table></div>"
        )
    return f"<h2>Operators</h2>\n{''.join(tables)}"


def _shapes(findings: Findings) -> str:
    text = "".join(
        f"<tr><td>{escape(step.name)}</td><td>{escape(step.size)}</td>"
        f"<td><code>{escape(printable(step.value, _MOST_CHARACTERS))}</code></td><td>{escape(step.what)}</td></tr>"
        for step in findings.text_steps
    )
    parts = "".join(_part(part, steps) for part, steps in groupby(findings.way.steps, key=lambda step: step.part))
    letters = ", ".join(f"{letter} {meaning}" for letter, meaning in SYMBOLS.items())
    return f"""<h2>Shapes</h2>
<p>{escape(findings.followed)}</p>
<div class="wide"><table><tr><th>step</th><th>size</th><th>value</th><th>what happens</th></tr>{text}</table></div>
<p class="faint">{escape(letters)}.</p>
<div class="wide"><table><tr><th>tensor</th><th>shape</th><th>what happens</th><th>formula</th><th>module</th></tr>
{parts}</table></div>
<p><b>{escape(findings.choice)}</b></p>
"""


def _part(part: str, steps: Iterable[TensorStep]) -> str:
    rows = "".join(
        f"<tr><td>{escape(step.tensor)}</td><td><code>{escape(step.shape_text)}</code></td><td>{escape(step.what)}</td>"
        f"<td><code>{escape(step.formula)}</code></td><td><code>{escape(step.module)}</code></td></tr>"
        for step in steps
    )
    return f'<tr class="part"><th colspan="5">{escape(part)}</th></tr>{rows}'


def _data(kinds: Sequence[AttentionWeights]) -> str:
    content = [
        {
            "title": each.title,
            "row_kind": each.row_kind,
            "column_kind": each.column_kind,
            "layers": each.weights.shape[0],
            "heads": each.weights.shape[1],
            "rows": [printable(piece) for piece in each.rows],
            "columns": [printable(piece) for piece in each.columns],
            "weights": base64.b64encode(np.rint(each.weights * _UNITS).astype("<u2").tobytes()).decode(),
        }
        for each in kinds
    ]
    return _json(content)


def _tables(tables: Sequence[PositionTable]) -> str:
    return _json(
        [
            {
                "rows": each.rows,
                "columns": each.columns,
                "first": each.first_column,
                "shape": each.values.shape,
                "values": base64.b64encode(each.values.astype("<f4").tobytes()).decode(),
            }
            for each in tables
        ]
    )


def _json(content: object) -> str:
    """Return JSON for within a script, where "<" may begin an end tag or a comment; it is spelled in another way."""
    return json.dumps(content).replace("<", "\\u003c")


def _pieces(pieces: Sequence[str]) -> str:
    return "".join(f'<span class="piece">{escape(printable(piece))}</span>' for piece in pieces)


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
