"""Texts of every kind translate, text for text, to what transformers makes of them with the folder's own tokenizer.

The server's tokenizer, engine and detokenizer against AutoTokenizer, `generate` and `decode`, on models of random
weights. As in `test_foreign_tokenizers`, transformers is told to take names of special tokens in texts for text.
"""

import dataclasses
import itertools
import random

import pytest

from helpers import hugging_face
from helpers.bundles import SOURCES, TARGETS
from helpers.driver import EngineDriver
from helpers.foreign_models import POSITIONS, make
from helpers.nasty_texts import FRAGMENTS, SPELLED
from translane_export import language_codes
from translane_server.language_pairs import LanguagePairs
from translane_server.options import DecodingOptions
from translane_server.request import Sentence

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")]

COUNT = 300
MAX_LENGTH = 16
PREFIX = "translate English to French: "
TASKS = {"translation_en_to_fr": {"prefix": PREFIX}}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, its tokenizer, and the languages to translate between, as the model calls them."""

    kind: str
    model: str
    source: str = ""
    target: str = ""
    fast: bool = False  # with a tokenizer.json beside SentencePiece's file
    spread: float = 0.4  # of the weights: texts differ, and logits are still as exact as an export wants them
    ends: float = 4.0
    config: dict = dataclasses.field(default_factory=dict)


CASES = {
    "Marian": Case("marian", "Marian", spread=0.25, ends=1.0),
    "M2M100": Case("m2m100", "M2M100, NLLB-200", "en", "fr", config={"vocab_size": 1000}),
    "NLLB-200": Case("nllb", "M2M100, NLLB-200", "eng_Latn", "fra_Latn", fast=True),
    "mBART-50": Case("mbart50", "mBART-50", "en_XX", "fr_XX", fast=True),
    "BART": Case("bart", "BART", spread=0.25, config={"forced_bos_token_id": 0, "bos_token_id": 0}),
    "T5": Case("t5", "T5", "en", "fr", fast=True, spread=0.1, config={"task_specific_params": TASKS}),
    "FLAN-T5": Case("t5", "FLAN-T5, T5 1.1", fast=True, spread=0.1),
    "mT5": Case("t5", "mT5", fast=True, spread=0.1),
}


def texts(case):
    """Ordinary sentences, nasty texts, and such before, in and after ordinary ones; none without a token."""
    pick = random.Random(0)
    pairs = [first + second for first, second in itertools.product(FRAGMENTS, FRAGMENTS)]
    mixed = [
        f"{pick.choice(FRAGMENTS)}{text}{pick.choice(FRAGMENTS)}" for text in (*TARGETS, *SOURCES) for _ in range(4)
    ]
    found = [*TARGETS, *SOURCES, *FRAGMENTS, *mixed, *pick.sample(pairs, 4 * COUNT)]
    if case.kind in ("mbart50", "t5"):
        found = [text for text in found if not any(name in text for name in SPELLED)]
    return [text for text in found if text.strip() and not (case.kind == "marian" and text.startswith(">>"))]


def told(folder, case, text):
    """Source ids as transformers makes them of a text."""
    text = PREFIX + text if "task_specific_params" in case.config else text
    return folder.tokenizer(text, split_special_tokens=True).input_ids


@pytest.mark.parametrize("name", CASES)
def test_texts_translate_to_the_texts_of_transformers(name, tmp_path):
    case = CASES[name]
    special = language_codes.NLLB200 if case.kind == "nllb" else ()
    folder = make(
        case.model,
        case.kind,
        tmp_path / case.kind,
        fast=case.fast,
        spread=case.spread,
        ends=case.ends,
        special=special,
        **case.config,
    )
    tokenizer, bundle = folder.tokenizer, folder.bundle
    if case.source and case.kind != "t5":
        tokenizer.src_lang = case.source
    with EngineDriver(bundle, rows=32, source_capacity=POSITIONS) as driver:
        pair, wrong = LanguagePairs(bundle.manifest.languages, driver.tokenizer).find(case.source, case.target)
        assert not wrong
        candidates = texts(case)
        encoded = dict(zip(candidates, pair.tokenizer.encode(candidates), strict=True))
        chosen = [text for text, ids in encoded.items() if 0 < len(ids) <= POSITIONS // 2][:COUNT]
        options, forced = DecodingOptions(max_length=MAX_LENGTH), pair.forced_ids
        found = driver.together([Sentence(encoded[text], options, forced, len(forced)) for text in chosen])
        ours = pair.tokenizer.decode([hypotheses[0].token_ids[len(forced) :] for hypotheses in found])
    assert len(chosen) == COUNT
    folder.model.generation_config.forced_bos_token_id = forced[0] if forced else None
    theirs = hugging_face.generate(folder.model, [told(folder, case, text) for text in chosen], 1, MAX_LENGTH)
    languages = {id_ for tokens in bundle.manifest.language_templates.target.values() for id_ in tokens.forced}
    ties = 0
    for text, translation, generated in zip(chosen, ours, theirs, strict=True):
        if generated.margin < hugging_face.TIE:
            ties += 1
            continue
        ids = [id_ for id_ in generated.token_ids if id_ not in languages]  # M2M100's tokenizer writes them
        expected = tokenizer.decode(ids, skip_special_tokens=True)
        assert translation == expected, text
    assert ties <= COUNT // 100
    assert len(set(ours)) > COUNT // 10, "the model says something else of different texts"
