"""The table of how often the language of a text is found."""

import gzip
from typing import cast

from benchmarks.runs import language_id
from translane_server.text.language_id import LanguageIdentifier


class Identifier:
    """Takes every text with a capital letter for German, and every other one for English."""

    def find(self, texts, candidates):
        return ["de" if text[:1].isupper() else "en" for text in texts]


def test_the_table_has_the_share_of_each_set():
    texts = {("A", "de"): ["Ja", "nein", "Gut", "Ob"], ("B", "en"): ["yes"]}
    lines = language_id.table(cast("LanguageIdentifier", Identifier()), texts).splitlines()
    assert lines[2:] == [
        "| 4 of A, `de` | 3 | 75.0% | 75.0% | 75.0% |",
        "| 1 of B, `en` | 3 | 100.0% | 100.0% | 100.0% |",
    ]


def test_the_sets_are_read(tmp_path):
    for folder in ("flores200", "tatoeba-de-en", "tatoeba-zh-en"):
        (tmp_path / folder).mkdir()
    for name in language_id.FLORES.values():
        (tmp_path / "flores200" / f"{name}.devtest").write_text(f"{name}\n", encoding="utf-8")
    for pair in ("de-en", "zh-en"):
        with gzip.open(tmp_path / f"tatoeba-{pair}" / "test.tsv.gz", "wt", encoding="utf-8") as file:
            file.write(f"{pair[:2]} text\tenglish\tsomebody\n" * 2)
    sets = language_id.read_sets(tmp_path)
    assert sets["FLORES-200", "zh"] == ["zho_Hans"]
    assert sets["Tatoeba", "de"] == ["de text"] * 2
    assert sets["Tatoeba", "en"] == ["english"] * 2
    assert sets["Tatoeba", "zh"] == ["zh text"] * 2
