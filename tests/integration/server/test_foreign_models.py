"""Folders of Hugging Face, exported and served: what texts translate to over the socket, between which languages."""

from typing import Any

import pytest

from helpers import hugging_face
from helpers.bundles import TARGETS
from helpers.foreign_models import FOREIGN_MODELS, PREFIX, export
from helpers.real_server import AS_THEY_ARE, serving_bundle
from translane.v1 import translation_pb2 as pb

pytestmark = pytest.mark.slow

MAX_LENGTH = 16
PAIRS = (("en", "fr"), ("en", "zh"), ("de", "fr"))
NAMES = {"de": "German", "fr": "French"}


async def check(stub, folder, sources, forced=None, beam_size=1, **languages):
    """Translations of `TARGETS` are what `generate` makes of `sources`, their ids by transformers' tokenizer."""
    options = pb.DecodingOptions(
        max_length=MAX_LENGTH, beam_size=beam_size, return_tokens=True, return_token_scores=True, **AS_THEY_ARE
    )
    request = pb.TranslateRequest(texts=TARGETS, options=options, **languages)
    translations = (await stub.Translate(request)).translations
    folder.model.generation_config.forced_bos_token_id = forced
    expected = hugging_face.generate(folder.model, sources, beam_size, MAX_LENGTH)
    compared = 0
    for translation, theirs, source in zip(translations, expected, sources, strict=True):
        if theirs.margin < hugging_face.TIE:
            continue
        compared += 1
        ids = list(theirs.hypotheses[0].token_ids[forced is not None :])
        (hypothesis,) = translation.hypotheses
        names = folder.tokenizer.convert_ids_to_tokens(ids)
        ours = [name for name in hypothesis.tokens if name != "</s>"]
        assert [one for one, two in zip(ours, names, strict=True) if one != two and not one.startswith("<")] == []
        assert translation.source_tokens == len(source)
        assert len(hypothesis.token_log_probs) == len(hypothesis.tokens)
        if not any(name == "<unk>" or name.startswith("__") for name in names):  # languages are written by theirs alone
            assert hypothesis.text.strip() == folder.tokenizer.decode(ids, skip_special_tokens=True).strip()
    assert compared > len(TARGETS) // 2
    return [translation.hypotheses[0] for translation in translations]


async def test_m2m100_translates_between_the_languages_of_the_request():
    folder = export(FOREIGN_MODELS["M2M100"])
    tokenizer = folder.tokenizer
    found = {}
    async with serving_bundle(folder.bundle, max_batch_size=8) as running:
        stub = running.stub
        for source, target in PAIRS:
            tokenizer.src_lang = source
            sources = [tokenizer(text).input_ids for text in TARGETS]
            languages: dict[str, Any] = {"source_language": source, "target_language": target}
            forced = tokenizer.get_lang_id(target)
            for beam_size in (1, 4):
                found[source, target, beam_size] = await check(stub, folder, sources, forced, beam_size, **languages)
    assert len({tuple(hypothesis.score for hypothesis in each) for each in found.values()}) == len(found)


async def test_t5_is_told_the_languages_in_words():
    folder = export(FOREIGN_MODELS["T5"])
    async with serving_bundle(folder.bundle, max_batch_size=8) as running:
        stub = running.stub
        for code, name in NAMES.items():
            sources = [folder.tokenizer(PREFIX.format(name) + text).input_ids for text in TARGETS]
            await check(stub, folder, sources, target_language=code)
