"""Which row each child of a hypothesis takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from translane_server.backend import RowMove
from translane_server.rows import RowTable
from translane_server.search import Search
from translane_server.step import Child


@dataclass(slots=True)
class Placement:
    """Children and the row of each, the copies that takes, and the rows that no child has taken."""

    rows: list[int] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)
    free: list[int] = field(default_factory=list)


def place(children: Mapping[Search, Sequence[Child]], searches: list[Search], table: RowTable) -> Placement:
    """Give each child a row: its parent's, one whose hypothesis died, or a free one behind the others.

    The copies are made in the table, and left to do for the backend.

    Args:
        children: what searches go on with.
        searches: what each row decodes; new rows are appended.
        table: the state of the rows.
    """
    placement = Placement()
    moves = placement.moves
    for search, ones in children.items():
        parents = {child.parent for child in ones}
        left = [row for row in reversed(search.rows) if row not in parents]
        taken: set[int] = set()
        rows = []
        for child in ones:
            row, source_length = child.parent, 0
            if row in taken:
                if left:
                    row = left.pop()
                else:
                    row, source_length = len(searches), int(table.source_length[child.parent])
                    searches.append(search)
                # the parent's row has been fed one token more than its position says
                moves.append(RowMove(child.parent, row, int(table.positions[child.parent]) + 1, source_length))
            taken.add(row)
            rows.append(row)
        placement.rows += rows
        placement.children += ones
        search.rows = rows
        placement.free += left
    table.copy([move.source for move in moves], [move.target for move in moves])
    return placement
