import pytest

from helpers.tiny_corpus import write_pairs


@pytest.fixture
def run_flags(tmp_path):
    """Flags of a run that takes seconds; keywords override them."""

    def flags(output: str = "run", **overrides: object) -> list[str]:
        train, valid = write_pairs(tmp_path / "train.tsv", 200, 1), write_pairs(tmp_path / "valid.tsv", 12, 2)
        files = {"train": train, "valid": valid, "output": tmp_path / output}
        pieces = {"vocabulary": "unigram", "source_vocabulary_size": 26, "target_vocabulary_size": 30}
        languages = {"source_language": "zh", "target_language": "en", "sampling_alpha": 0.5}
        sizes = {"preset": "tiny", "d_model": 32, "ffn_size": 64, "max_positions": 32, "max_tokens": 256}
        steps = {"learning_rate": 0.01, "warmup_steps": 20, "valid_every": 10, "max_steps": 25, "average": 2}
        machine = {"threads": 1, "device": "cpu", "precision": "fp32"}
        values: dict[str, object] = {**files, **pieces, **languages, **sizes}
        values |= {**steps, **machine, **overrides}
        return [
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in values.items()
        ]

    return flags
