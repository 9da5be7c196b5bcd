"""Texts of every kind translate, text for text, to what transformers makes of them with the folder's own tokenizer."""

import pytest

from helpers.foreign_models import FOREIGN_MODELS
from helpers.translated_texts import compare

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")]

COUNT = 60


@pytest.mark.parametrize("name", FOREIGN_MODELS)
def test_texts_translate_to_the_texts_of_transformers(name):
    found = compare(FOREIGN_MODELS[name], COUNT)
    assert found.mismatches == []
    assert found.texts == COUNT
    assert found.ties <= 1
    assert found.different > COUNT // 10, "the model says something else of different texts"
