import pytest

from helpers.tiny_corpus import write_pairs


@pytest.fixture
def run_flags(tmp_path):
    """Flags of a run that takes seconds; keywords override them."""

    def flags(output: str = "run", **overrides: object) -> list[str]:
        values: dict[str, object] = {
            "train": write_pairs(tmp_path / "train.tsv", 200, 1),
            "valid": write_pairs(tmp_path / "valid.tsv", 12, 2),
            "output": tmp_path / output,
            "vocabulary": "unigram",
            "source_vocabulary_size": 26,
            "target_vocabulary_size": 30,
            "source_language": "zh",
            "target_language": "en",
            "preset": "tiny",
            "d_model": 32,
            "ffn_size": 64,
            "max_positions": 32,
            "max_tokens": 256,
            "learning_rate": 0.01,
            "warmup_steps": 20,
            "sampling_alpha": 0.5,
            "valid_every": 10,
            "max_steps": 25,
            "average": 2,
            "threads": 1,
            "device": "cpu",
            "precision": "fp32",
            **overrides,
        }
        return [
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in values.items()
        ]

    return flags
