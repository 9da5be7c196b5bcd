"""Tatoeba's test split from Chinese to English, which is beside the checkout."""

import gzip
from pathlib import Path

import pytest

_TEST_SPLIT = Path(__file__).resolve().parents[3] / "shared" / "data" / "tatoeba-zh-en" / "test.tsv.gz"


def tatoeba() -> tuple[list[str], list[str]]:
    """Return sentences and their translations. Skip the test if they are not on this machine."""
    if not _TEST_SPLIT.exists():
        pytest.skip(f"{_TEST_SPLIT} is not there")
    with gzip.open(_TEST_SPLIT, "rt", encoding="utf-8") as lines:
        sources, targets, *_ = zip(*(line.split("\t") for line in lines), strict=True)
    return list(sources), list(targets)
