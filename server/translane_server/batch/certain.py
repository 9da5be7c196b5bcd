"""What is certain of a translation while it is decoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from translane_server.batch.hypotheses import alignment_of
from translane_server.batch.rows import RowTable
from translane_server.batch.search import Search


def report(searches: Sequence[Search], table: RowTable, free: Sequence[int]) -> None:
    """Tell whoever listens which tokens are certain by now.

    Args:
        searches: what each row decodes.
        table: the state of the rows.
        free: rows whose hypotheses have ended.
    """
    for row, search in enumerate(searches):
        listener = search.job.sentence.on_progress
        if listener is None or row in free or row != search.rows[0]:
            continue
        length = _agreed_length(search, table)
        if length > search.agreed:
            search.agreed = length
            alignment = alignment_of(table, row, length) if search.job.sentence.options.alignment else ()
            listener(tuple(table.tokens(row, length)), alignment)


def _agreed_length(search: Search, table: RowTable) -> int:
    """How many tokens the live hypotheses share with each other and with the best ended one."""
    first = search.rows[0]
    length = int(table.positions[first])
    if len(search.rows) > 1:
        history = table.history[search.rows, 1 : length + 1]
        length = _shared(np.flatnonzero((history != history[0]).any(axis=0)), length)
    if search.pool and search.pool.hypotheses:
        ended = np.array(search.pool.hypotheses[0].token_ids, np.int64)
        length = min(length, len(ended))
        length = _shared(np.flatnonzero(table.history[first, 1 : length + 1] != ended[:length]), length)
    return length


def _shared(differences: npt.NDArray[np.intp], length: int) -> int:
    return int(differences[0]) if differences.size else length
