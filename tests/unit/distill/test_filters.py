import pytest

from translane_export.distill.filters import LONG, Filters
from translane_export.distill.journal import Output
from translane_server.core.suspect_pairs import COPY, EMPTY, RATIO


@pytest.mark.parametrize(
    ("source", "pieces", "output", "reason"),
    [
        ("我有一只猫。", 6, Output("I have a cat.", 5), None),
        ("我有一只猫。", 6, Output("", 0), EMPTY),
        ("Tom", 2, Output("Tom", 1), COPY),
        ("长", 11, Output("Long.", 10), None),
        ("长", 12, Output("Long.", 10), LONG),
        ("长", 10, Output("Long.", 11), LONG),
        ("好", 2, Output("That is good.", 5), None),
        ("好", 2, Output("That is good and well.", 6), RATIO),
        ("这本书很有意思", 7, Output("Yes", 1), RATIO),
    ],
)
def test_pairs_that_teach_mistakes_are_left_out_and_counted(
    source: str, pieces: int, output: Output, reason: str | None
) -> None:
    filters = Filters(max_length=10, max_ratio=3.0)
    assert filters.keeps(source, pieces, output) is (reason is None)
    assert dict(filters.left_out) == ({reason: 1} if reason else {})
