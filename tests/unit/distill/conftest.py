from pathlib import Path

import pytest

from helpers.bundles import SOURCES, TARGETS
from helpers.demo import DEMO

LINES = tuple(
    f"{source}\t{target}\n"
    for times in range(3)  # every source occurs again, with another target
    for source, target in zip(SOURCES, (target * (times + 1) for target in TARGETS), strict=True)
)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.tsv"
    path.write_text("".join(LINES), encoding="utf-8")
    return path


@pytest.fixture
def flags(text, tmp_path):
    """Arguments of a run that takes a moment; keywords override them. A student can share DEMO's vocabularies."""

    def flags(output: str = "out", *, teacher: Path = DEMO, **overrides: object) -> list[str]:
        limits = {"max_length": 24, "max_ratio": 1000, "max_batch_size": 8, "threads": 1}
        values = {"train": text, "output": tmp_path / output, **limits, **overrides}
        given = [
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in values.items()
        ]
        return ["distill", str(teacher), *given]

    return flags
