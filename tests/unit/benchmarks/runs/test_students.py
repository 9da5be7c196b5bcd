from dataclasses import asdict

from benchmarks.places import DEMO
from benchmarks.report import student_tables
from benchmarks.runs import students
from helpers.bundles import SOURCES, TARGETS
from translane_server.bundle import load_bundle
from translane_server.options import DecodingOptions


def test_the_teacher_is_as_fast_as_itself_and_all_bundles_get_a_row():
    bundles = [load_bundle(DEMO), load_bundle(DEMO)]
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    rows = list(students.compare(bundles, [31.5, 32.5], pairs, DecodingOptions(16), 4, 1, 1))
    assert [(row.bundle, row.bleu, row.rows, row.beams) for row in rows] == [
        ("zh-en", 31.5, 4, 1),
        ("zh-en", 32.5, 4, 1),
    ]
    assert rows[0].ratio == 1
    assert student_tables.row(asdict(rows[0])).count("|") == student_tables.HEADER.count("|")
