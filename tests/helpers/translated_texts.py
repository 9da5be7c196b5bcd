"""Compares translations of all kinds of texts with transformers: the folder's own tokenizer, `generate` and `decode`.

The other side is the server's tokenizer, decoding and detokenizer. As in `test_foreign_tokenizers`, transformers takes
names of special tokens in texts for text.
"""

import dataclasses
import itertools
import random
from collections.abc import Sequence

from helpers import hugging_face
from helpers.bundles import SOURCES, TARGETS
from helpers.driver import BundleDecoder
from helpers.foreign_models import POSITIONS, PREFIX, Exported, ForeignModel, export
from helpers.nasty_texts import FRAGMENTS, SPELLED
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence
from translane_server.translation.languages import LanguagePair, LanguagePairs

MAX_LENGTH = 16


@dataclasses.dataclass
class Comparison:
    """How many texts were compared, how many different translations they have, and the result."""

    texts: int
    different: int
    ties: int = 0
    mismatches: list[str] = dataclasses.field(default_factory=list)


def compare(foreign: ForeignModel, count: int) -> Comparison:
    """Translate `count` texts as the server does, with a model's bundle, and by transformers, with the model."""
    exported = export(foreign)
    tokenizer, languages = exported.tokenizer, exported.bundle.manifest.languages
    if foreign.source and foreign.kind != "t5":
        tokenizer.src_lang = foreign.source
    with BundleDecoder(exported.bundle, rows=32, source_capacity=POSITIONS) as driver:
        pair, wrong = LanguagePairs(languages, driver.tokenizer).find(foreign.source, foreign.target)
        assert not wrong
        texts = _choose(_texts(foreign, count), pair, count)
        ours = _translate(driver, pair, texts)
    theirs = _generate(foreign, exported, pair.forced_ids, texts)
    found = Comparison(len(texts), len(set(ours)))
    written = {id_ for tokens in languages.templates.target.values() for id_ in tokens.forced}
    for text, translation, generated in zip(texts, ours, theirs, strict=True):
        ids = [id_ for id_ in generated.token_ids if id_ not in written]  # M2M100's tokenizer writes languages
        expected = tokenizer.decode(ids, skip_special_tokens=True)
        if foreign.kind == "bart":
            expected = expected.removeprefix(" ")  # all other tokenizers leave this space out, too
        if generated.margin < hugging_face.TIE:
            found.ties += 1
        elif translation != expected:
            found.mismatches.append(f"{text!r}: {translation!r} is not {expected!r}")
    return found


def _translate(driver: BundleDecoder, pair: LanguagePair, texts: Sequence[str]) -> list[str]:
    options, forced = DecodingOptions(max_length=MAX_LENGTH), pair.forced_ids
    sentences = [Sentence(ids, options, forced, len(forced)) for ids in pair.encode(texts)]
    return pair.tokenizer.decode([best.token_ids[len(forced) :] for best, *_ in driver.together(sentences)])


def _generate(
    foreign: ForeignModel, exported: Exported, forced: Sequence[int], texts: Sequence[str]
) -> list[hugging_face.Generated]:
    before = PREFIX.format("French") if "task_specific_params" in foreign.config else ""
    encoded = [exported.tokenizer(before + text, split_special_tokens=True).input_ids for text in texts]
    exported.model.generation_config.forced_bos_token_id = forced[0] if forced else None
    return hugging_face.generate(exported.model, encoded, 1, MAX_LENGTH)


def _texts(foreign: ForeignModel, count: int) -> list[str]:
    """Return ordinary sentences, nasty texts, and ordinary sentences with nasty texts around them."""
    pick = random.Random(0)
    pairs = [first + second for first, second in itertools.product(FRAGMENTS, FRAGMENTS)]
    mixed = [
        f"{pick.choice(FRAGMENTS)}{text}{pick.choice(FRAGMENTS)}" for text in (*TARGETS, *SOURCES) for _ in range(4)
    ]
    found = [*TARGETS, *SOURCES, *FRAGMENTS, *mixed, *pick.sample(pairs, min(4 * count, len(pairs)))]
    if foreign.kind in ("mbart50", "t5"):
        found = [text for text in found if not any(name in text for name in SPELLED)]
    return [text for text in found if text.strip() and not (foreign.kind == "marian" and text.startswith(">>"))]


def _choose(texts: Sequence[str], pair: LanguagePair, count: int) -> list[str]:
    """Return `count` texts that have some but not too many tokens, spread over `texts`."""
    encoded = dict(zip(texts, pair.encode(texts), strict=True))
    fitting = [text for text, ids in encoded.items() if 0 < len(ids) <= POSITIONS // 2]
    return fitting[:: max(1, len(fitting) // count)][:count]
