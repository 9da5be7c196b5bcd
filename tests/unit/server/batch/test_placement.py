import pytest

from translane_server.backend import RowMove
from translane_server.batch.placement import place
from translane_server.batch.ranking import Child, Offspring
from translane_server.batch.rows import RowTable
from translane_server.batch.search import Kind, Search


@pytest.fixture
def table():
    """Rows 0, 1, 2 of one sentence, and row 3 of another: all were fed three tokens."""
    table = RowTable(8, 10, 10)
    for row, tokens in enumerate(([2, 5, 6], [2, 5, 7], [2, 8, 6], [2, 9, 9])):
        table.history[row, :3] = tokens
        table.positions[row], table.source_length[row] = 2, 4
    return table


def offspring(*searches):
    found = Offspring()
    for search, parents in searches:
        found.add(search, [Child(parent, 50 + parent, -1.0, -2.0) for parent in parents])
    return found


def test_hypotheses_that_go_on_stay_where_they_are(table):
    first, second = Search(None, [0, 1, 2], Kind.BEAM, False), Search(None, [3], Kind.BEAM, False)
    searches = [first] * 3 + [second]
    placement = place(offspring((first, [2, 0, 1]), (second, [3])), searches, table)
    assert placement.rows == [2, 0, 1, 3]
    assert first.rows == [2, 0, 1]
    assert placement.moves == placement.free == []


def test_a_second_child_takes_the_row_of_one_that_died_from_where_their_tokens_differ(table):
    search = Search(None, [0, 1, 2], Kind.BEAM, False)
    placement = place(offspring((search, [0, 1, 0])), [search] * 3, table)
    assert placement.rows == search.rows == [0, 1, 2]
    assert placement.moves == [RowMove(0, 2, 3, 0, start=1)]
    assert table.tokens(2, 2) == [5, 6]
    placement = place(offspring((search, [1, 1, 1])), [search] * 3, table)
    assert placement.rows == [1, 0, 2]
    assert placement.moves == [RowMove(1, 0, 3, 0, start=2), RowMove(1, 2, 3, 0, start=2)]


def test_more_children_take_rows_behind_the_others_and_the_encoded_source_with_them(table):
    first, second = Search(None, [0, 1, 2], Kind.BEAM, False), Search(None, [3], Kind.BEAM, False)
    searches = [first] * 3 + [second]
    placement = place(offspring((first, [1]), (second, [3, 3, 3])), searches, table)
    assert placement.rows == [1, 3, 4, 5]
    assert placement.free == [0, 2]
    assert placement.moves == [RowMove(3, 4, 3, 4), RowMove(3, 5, 3, 4)]
    assert searches[3:] == [second] * 3
    assert table.tokens(5, 2) == [9, 9]
