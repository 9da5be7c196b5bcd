"""How often the language of a text is found: sentences of FLORES-200 and of Tatoeba, among few and many languages.

    python -m benchmarks.runs.language_id
    python -m benchmarks.runs.language_id --write    # into docs/server.md

The source language "auto" finds a language among those that can be translated. So the table has columns by candidates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models.workload import read_fields
from benchmarks.places import ROOT
from benchmarks.report.marked_part import write_part
from translane_server.text.language_id import LanguageIdentifier

PAGE = ROOT / "docs" / "server.md"
DATA = ROOT.parent / "shared" / "data"
FLORES = {"de": "deu_Latn", "en": "eng_Latn", "zh": "zho_Hans"}
CANDIDATES = {
    "3": ["de", "en", "zh"],
    "10": ["de", "en", "zh", "fr", "es", "nl", "da", "sv", "it", "pt"],
    "50": [
        *["de", "en", "zh", "fr", "es", "nl", "da", "sv", "it", "pt", "no", "is", "ja", "ko", "ru", "uk", "pl", "cs"],
        *["sk", "ro", "tr", "fi", "et", "hu", "ar", "fa", "hi", "bn", "ur", "ta", "te", "vi", "id", "ms", "el", "he"],
        *["th", "bg", "sr", "hr", "sl", "lt", "lv", "ca", "gl", "eu", "sq", "mk", "sw", "af"],
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--write", action="store_true", help="write the table into docs/server.md")
    arguments = parser.parse_args()
    began = time.perf_counter()
    identifier = LanguageIdentifier()
    print(f"loaded in {time.perf_counter() - began:.2f} s")
    texts = read_sets(arguments.data)
    began = time.perf_counter()
    lines = table(identifier, texts)
    count = len(CANDIDATES) * sum(map(len, texts.values()))
    print(f"{(time.perf_counter() - began) / count * 1e6:.0f} µs for a text\n\n{lines}")
    if arguments.write:
        write_part(PAGE, "languages found", "python -m benchmarks.runs.language_id --write", lines)


def read_sets(data: Path) -> dict[tuple[str, str], list[str]]:
    """The texts of each data set and language."""
    sets = {
        ("FLORES-200", tag): (data / "flores200" / f"{name}.devtest").read_text(encoding="utf-8").splitlines()
        for tag, name in FLORES.items()
    }
    german, english = zip(*(fields[:2] for fields in read_fields(data / "tatoeba-de-en" / "test.tsv.gz")), strict=True)
    chinese = [fields[0] for fields in read_fields(data / "tatoeba-zh-en" / "test.tsv.gz")]
    return sets | {("Tatoeba", "de"): [*german], ("Tatoeba", "en"): [*english], ("Tatoeba", "zh"): chinese}


def table(identifier: LanguageIdentifier, texts: dict[tuple[str, str], list[str]]) -> str:
    """The share of texts whose language is found, by data set, language and number of candidates."""
    heads = " | ".join(f"of {number} languages" for number in CANDIDATES)
    rows = [
        f"| sentences | median characters | {heads} |",
        "|---|---:|" + "---:|" * len(CANDIDATES),
    ]
    for (name, tag), each in texts.items():
        shares = " | ".join(f"{share(identifier, each, tag, among):.1%}" for among in CANDIDATES.values())
        median = sorted(map(len, each))[len(each) // 2]
        rows.append(f"| {len(each):,} of {name}, `{tag}` | {median} | {shares} |")
    return "\n".join(rows)


def share(identifier: LanguageIdentifier, texts: Sequence[str], tag: str, among: Sequence[str]) -> float:
    """The share of `texts` that have the language `tag` among the candidates."""
    return identifier.find(texts, among).count(tag) / len(texts)


if __name__ == "__main__":
    main()
