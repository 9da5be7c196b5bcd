import pytest

from helpers.bundles import SOURCES, TARGETS
from helpers.demo import DEMO

LINES = tuple(
    f"{source}\t{target}\n"
    for times in range(3)  # every source occurs again, with another target
    for source, target in zip(SOURCES, (target * (times + 1) for target in TARGETS), strict=True)
)


@pytest.fixture
def teacher():
    """The bundled model, whose vocabularies a student can share; not to be written to."""
    return DEMO


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.tsv"
    path.write_text("".join(LINES), encoding="utf-8")
    return path


@pytest.fixture
def flags(teacher, text, tmp_path):
    """Arguments of a run that takes a moment; keywords override them."""

    def flags(output: str = "out", **overrides: object) -> list[str]:
        values: dict[str, object] = {
            "train": text,
            "output": tmp_path / output,
            "max_length": 24,
            "max_ratio": 1000,
            "max_batch_size": 8,
            "threads": 1,
            **overrides,
        }
        given = [
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in values.items()
        ]
        return ["distill", str(values.get("teacher", teacher)), *(flag for flag in given if "--teacher" not in flag)]

    return flags
