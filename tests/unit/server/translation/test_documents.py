"""Pages and Markdown keep their structure when their texts go through the reader."""

import random
from collections import Counter

import pytest

from fakes.backend import DECODER_START, EOS, OFFSET, FakeBackend
from fakes.serving import FakeTokenizer, make_manifest
from helpers import random_markdown, random_pages
from translane.options import Format
from translane.requests import TranslationRequest
from translane_server.engine import offline
from translane_server.engine.sequence import TargetVocabulary
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.reader import TranslateReader

TOKENS = 300


class WholeTokenizer(FakeTokenizer):
    """Knows every character of the documents."""

    def __init__(self):
        super().__init__()
        for number, character in enumerate("你好’—😀", start=len(self._ids) + 10):
            self._ids[character] = number
            self._characters[number + OFFSET] = character


TOKENIZER = WholeTokenizer()
READER = TranslateReader(
    make_manifest(source_languages=["en"]), TOKENIZER, RequestLimits(1, 1000, TokenLimits(TOKENS, TOKENS, TOKENS), 1)
)
VOCABULARY = TargetVocabulary(DECODER_START, EOS, TOKENIZER.target_surfaces)


def translated(source, format_):
    request = TranslationRequest([source], format=format_)
    READER.check(request)
    prepared = READER.read(request)
    backend = FakeBackend(rows=16, source_capacity=TOKENS, target_capacity=TOKENS)
    (translation,) = prepared.translations(offline.decode(backend, VOCABULARY, prepared.sentences))
    return translation.hypotheses[0].text


@pytest.mark.parametrize("seed", range(40))
def test_a_page_keeps_its_elements_and_its_words(seed):
    page = random_pages.random_page(random.Random(seed))
    same = translated(page, Format.HTML)
    for tree in (random_pages.spec_tree, random_pages.libxml_tree):
        assert random_pages.kept(tree, same, protected=True) == random_pages.kept(tree, page, protected=True)
        assert Counter(random_pages.text_of(tree(same))) == Counter(random_pages.text_of(tree(page)))


@pytest.mark.parametrize("seed", range(40))
def test_a_markdown_document_keeps_its_structure_and_its_words(seed):
    source = random_markdown.random_document(random.Random(seed))
    same = translated(source, Format.MARKDOWN)
    assert random_markdown.tags(same) == random_markdown.tags(source)
    assert random_markdown.letters(same) == random_markdown.letters(source)
