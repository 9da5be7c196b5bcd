import math
from collections import Counter
from pathlib import Path

import pytest

from translane_export.train.vocabulary import SegmentationSampler, Vocabulary, VocabularySettings, train_vocabulary

TEXTS = ["banana bandana", "a band", "", "an abandoned banana"]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    settings = VocabularySettings("unigram", 16, "nmt_nfkc", 1.0)
    return train_vocabulary(TEXTS * 20, settings, tmp_path / "a.spm", seed=1)


def test_a_draw_is_a_segmentation_and_the_seed_decides_which(vocabulary: Vocabulary) -> None:
    sampler = SegmentationSampler(vocabulary, TEXTS, alpha=0.1, nbest=8)
    first = sampler.draw((1, 0))
    assert vocabulary.decode(first) == TEXTS
    assert sampler.draw((1, 0)) == first
    assert len({str(sampler.draw((1, epoch))) for epoch in range(20)}) > 10


def test_draws_follow_the_smoothed_distribution(vocabulary: Vocabulary) -> None:
    segmentations = vocabulary.best_segmentations(TEXTS[0], 3)
    weights = [math.exp(0.5 * segmentation.log_probability) for segmentation in segmentations]
    drawn = SegmentationSampler(vocabulary, TEXTS[:1] * 4000, alpha=0.5, nbest=3).draw((1,))
    counts = Counter(map(tuple, drawn))
    for segmentation, weight in zip(segmentations, weights, strict=True):
        assert counts[tuple(segmentation.ids)] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)
