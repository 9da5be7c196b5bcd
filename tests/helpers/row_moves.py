"""Moves of some rows over others, for the copies of each device."""

from hypothesis import strategies as st

from translane_server.runtime.backend import RowMove
from translane_server.runtime.cache import CacheShape


@st.composite
def moves(draw: st.DrawFn, shape: CacheShape) -> list[RowMove]:
    """Moves in any order, often of the same positions of one row."""
    rows, count = draw(st.permutations(range(shape.rows))), draw(st.integers(0, shape.rows - 1))
    found: list[RowMove] = []
    for target in rows[:count]:
        if draw(st.booleans()) and found:
            found.append(found[-1]._replace(target=target))
            continue
        source = draw(st.sampled_from(rows[count:]))
        length = draw(st.integers(0, shape.target_capacity))
        source_length, start = draw(st.integers(0, shape.source_capacity)), draw(st.integers(0, length))
        found.append(RowMove(source, target, length, source_length, start))
    return found
