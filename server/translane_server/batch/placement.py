"""Which row each child of a hypothesis takes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from translane_server.backend import RowMove
from translane_server.batch.ranking import Offspring
from translane_server.batch.rows import RowTable
from translane_server.batch.search import Search


@dataclass(slots=True)
class Placement:
    """The row of each child, the copies that takes, and the rows that no child has taken."""

    rows: list[int] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)
    free: list[int] = field(default_factory=list)


def place(offspring: Offspring, searches: list[Search], table: RowTable) -> Placement:
    """Give each child a row: its parent's, one whose hypothesis died, or a free one behind the others.

    The copies are made in the table, and left to do for the backend.

    Args:
        offspring: what searches go on with.
        searches: what each row decodes; new rows are appended.
        table: the state of the rows.
    """
    placement = Placement()
    reused: list[tuple[int, int]] = []  # parents, and rows whose hypothesis died
    new: list[tuple[int, int]] = []  # parents, and rows behind the others
    for search, parents in zip(offspring.searches, offspring.parents, strict=True):
        staying = set(parents)
        left = [row for row in search.rows if row not in staying]
        rows = parents
        if len(staying) < len(parents):
            rows = []
            for parent in parents:
                row = parent
                if parent in staying:
                    staying.remove(parent)
                elif left:
                    reused.append((parent, row := left.pop(0)))
                else:
                    new.append((parent, row := len(searches)))
                    searches.append(search)
                rows.append(row)
        placement.rows += rows
        search.rows = list(rows)
        placement.free += left
    if reused or new:
        placement.moves = [*_reorder(reused, table), *_grow(new, table)]
        sources, targets = zip(*reused, *new, strict=True)
        table.copy(sources, targets)
    return placement


def _reorder(pairs: list[tuple[int, int]], table: RowTable) -> list[RowMove]:
    """Copy hypotheses over others of the same sentence: from where their tokens differ."""
    if not pairs:
        return []
    sources, targets = np.array(pairs).T
    fed = table.positions[sources] + 1  # a parent's row has been fed one token more than its position says
    longest = int(fed.max())
    starts = (table.history[sources, :longest] != table.history[targets, :longest]).argmax(axis=1)
    return [
        RowMove(source, target, length, 0, min(start, length - 1))
        for (source, target), length, start in zip(pairs, fed.tolist(), starts.tolist(), strict=True)
    ]


def _grow(pairs: list[tuple[int, int]], table: RowTable) -> list[RowMove]:
    """Copy hypotheses to rows that have nothing of their sentence yet."""
    return [
        RowMove(source, target, int(table.positions[source]) + 1, int(table.source_length[source]))
        for source, target in pairs
    ]
