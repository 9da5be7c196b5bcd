"""Groups row moves. The groups may run at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

from translane_server.runtime.backend import RowMove


@dataclass(eq=False, slots=True)
class _Group:
    rows: list[int]  # rows that the group's moves overwrite
    moves: list[RowMove] = field(default_factory=list)


def independent_groups(moves: Sequence[RowMove]) -> tuple[Sequence[RowMove], Sequence[int]]:
    """Return the moves, group after group, and the starts: group g has the moves starts[g] … starts[g + 1] - 1.

    No group overwrites a row that another group reads or overwrites. So groups may run in any order or at once.
    Within a group, moves that touch the same overwritten row keep their order.
    """
    sources, targets = {move.source for move in moves}, {move.target for move in moves}
    if len(targets) == len(moves) and targets.isdisjoint(sources):
        return moves, range(len(moves) + 1)
    groups = _connected(moves)
    return list(chain.from_iterable(groups)), list(accumulate(map(len, groups), initial=0))


def _connected(moves: Sequence[RowMove]) -> list[list[RowMove]]:
    """Group the moves that are linked by overwritten rows.

    Two groups share no overwritten row until a move joins the groups. So the groups' moves may be joined in either
    order.
    """
    groups = {move.target: _Group([move.target]) for move in moves}
    for move in moves:
        group, other = groups[move.target], groups.get(move.source)
        if other is not None and other is not group:
            if len(other.rows) > len(group.rows):
                group, other = other, group
            group.rows += other.rows
            group.moves += other.moves
            for row in other.rows:
                groups[row] = group
        group.moves.append(move)
    return [group.moves for row, group in groups.items() if group.rows[0] == row]
