from collections.abc import Callable
from pathlib import Path

import opencc
import pytest

from translane_export.errors import ExportError
from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.settings import VocabularyKind
from translane_export.train.vocabulary import Vocabulary, VocabularySettings, train_vocabulary

pytestmark = pytest.mark.slow

SIZES: dict[VocabularyKind, int] = {"unigram": 30, "bpe": 60, "char": 60, "word": 60}
SHARED = Path(__file__).parents[4] / "shared" / "data" / "tatoeba-zh-en"


@pytest.fixture
def sentences(write_tsv: Callable[[str, int, int], Path]) -> list[str]:
    path = write_tsv("text.tsv", 200, 1)
    return [pair.target for pair in read_parallel_text(path, Columns(), "refuse").pairs]


def _settings(kind: VocabularyKind = "unigram", size: int = 30) -> VocabularySettings:
    return VocabularySettings(kind=kind, size=size, normalization="nmt_nfkc", character_coverage=1.0)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word"])
def test_each_kind_encodes_and_decodes(tmp_path: Path, sentences: list[str], kind: VocabularyKind) -> None:
    vocabulary = train_vocabulary(sentences, _settings(kind, SIZES[kind]), tmp_path / "a.spm", seed=1)
    assert vocabulary.pieces()[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert len(vocabulary) <= 60
    assert vocabulary.decode(vocabulary.encode(sentences)) == sentences


def test_the_first_segmentation_is_the_best_one(tmp_path: Path, sentences: list[str]) -> None:
    vocabulary = train_vocabulary(sentences, _settings(), tmp_path / "a.spm", seed=1)
    segmentations = vocabulary.best_segmentations(sentences[0], 5)
    assert [segmentations[0].ids] == vocabulary.encode(sentences[:1])
    assert len(segmentations) > 2
    log_probabilities = [segmentation.log_probability for segmentation in segmentations]
    assert log_probabilities == sorted(log_probabilities, reverse=True)
    assert vocabulary.decode([segmentation.ids for segmentation in segmentations]) == [sentences[0]] * len(
        segmentations
    )


def test_a_broken_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.spm").write_bytes(b"not a model")
    for name in ("broken.spm", "missing.spm"):
        with pytest.raises(ExportError, match=name):
            Vocabulary(tmp_path / name)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the Tatoeba data is not beside the checkout")
def test_simplified_and_traditional_get_the_same_ids(tmp_path: Path) -> None:
    text = read_parallel_text(SHARED / "train.tsv.gz", Columns(), "refuse")
    settings = VocabularySettings("unigram", 4000, "nmt_nfkc_t2s", 1.0)
    vocabulary = train_vocabulary((pair.source for pair in text.pairs), settings, tmp_path / "a.spm", seed=1)
    valid = [pair.source for pair in read_parallel_text(SHARED / "valid.tsv.gz", Columns(), "refuse").pairs]
    to_simplified, to_traditional = opencc.OpenCC("t2s"), opencc.OpenCC("s2t")
    simplified = [to_simplified.convert(sentence) for sentence in valid]
    traditional = [to_traditional.convert(sentence) for sentence in simplified]
    assert sum(a != b for a, b in zip(simplified, traditional, strict=True)) > len(valid) / 2
    expected = vocabulary.encode(valid)
    assert _different(vocabulary.encode(simplified), expected) == 0
    # s2t picks words, too (具 or 俱, 象 or 像), which no change of script undoes.
    assert _different(vocabulary.encode(traditional), expected) < 0.005 * len(valid)


def _different(ours: list[list[int]], theirs: list[list[int]]) -> int:
    return sum(a != b for a, b in zip(ours, theirs, strict=True))
