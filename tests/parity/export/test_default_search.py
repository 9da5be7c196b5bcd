"""Requests without options are searched as `generate` searches without arguments: token for token, score for score."""

import dataclasses
import json
import random
from typing import Any

import pytest
import transformers
from msgspec.structs import replace

from helpers import hugging_face
from helpers.driver import BundleDecoder
from helpers.foreign_models import FOREIGN_MODELS, export
from helpers.real_server import AS_THEY_ARE, serving_bundle
from translane.options import checked_options
from translane.requests import TranslationRequest
from translane.v1 import translation_pb2 as pb
from translane_export.sources.huggingface import (
    CONFIG,
    GENERATION_CONFIG,
    generation_settings,
    read_lengths,
    read_search,
    read_settings,
)
from translane_server.bundle.manifest import DecodingDefaults, LanguageTemplates, LanguageTokens
from translane_server.settings.server_settings import ServerSettings
from translane_server.translation.limits import limits_of
from translane_server.translation.reader import TranslateReader

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")]

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "What a server does, it says.",
    "a",
    "Twice and twice again",
    "I have a cat.",
]
NAMES = ("Marian", "BART", "T5", "M2M100, NLLB-200", "mBART-50")
RENORMALIZED = ("Marian", "BART")  # their files ban an id
FILES, SENTENCES, ROWS = 4, 6, 48
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def random_file(pick, renormalize):
    """What a generation_config.json says of the search. Where probabilities are shared anew, no rule is drawn."""
    drawn: dict[str, Any] = {}
    if pick.random() < 0.8:
        drawn["num_beams"] = pick.randint(1, 6)
    if pick.random() < 0.6:
        drawn["length_penalty"] = pick.randint(-10, 20) / 10
    if pick.random() < 0.6:
        choices = [True, False, "never"] if drawn.get("length_penalty", 1.0) <= 0 else [True, False]
        drawn["early_stopping"] = pick.choice(choices)
    name, longest = pick.choice([("max_length", pick.randint(3, 30)), ("max_new_tokens", pick.randint(2, 30))])
    drawn[name] = longest
    if renormalize:
        return drawn
    if pick.random() < 0.4:
        drawn["no_repeat_ngram_size"] = pick.randint(0, 4)
    if pick.random() < 0.4:
        drawn["repetition_penalty"] = pick.randint(8, 20) / 10
    if pick.random() < 0.4:
        drawn[pick.choice(["min_length", "min_new_tokens"])] = pick.randint(0, longest - 1)
    return drawn


def manifest_of(manifest, folder, forced):
    """The manifest with the decoding defaults that an export of `folder` would write."""
    settings = read_settings(folder)
    search = read_search(generation_settings(settings))
    assert not search.left_out
    longest = read_lengths(settings)["default_max_length"]
    defaults = DecodingDefaults(max_length=longest, **search.defaults.given)
    target = {} if forced is None else {manifest.target_languages[0]: LanguageTokens(forced=(forced,))}
    return replace(manifest, decoding_defaults=defaults, language_templates=LanguageTemplates(target=target))


@pytest.mark.parametrize(
    ("name", "renormalize"), [*((name, False) for name in NAMES), *((name, True) for name in RENORMALIZED)]
)
def test_random_generation_configs(tmp_path, name, renormalize):
    """The exporter reads such a file, the server reads requests that set nothing, and the running batch decodes."""
    generation = {"renormalize_logits": True} if renormalize else {}
    model, bundle = hugging_face.export_drawn(name, seed=1, generation=generation)
    own = {name: value for name, value in model.generation_config.to_dict().items() if value is not None}
    (tmp_path / CONFIG).write_bytes((bundle.folder.parent / "model" / CONFIG).read_bytes())
    settings = ServerSettings.model_validate({"model": "unused", "max_batch_size": ROWS}).of_model("m")
    pick, found = random.Random(1), hugging_face.Comparison()
    with BundleDecoder(bundle, rows=ROWS) as driver:
        for _ in range(FILES):
            drawn = random_file(pick, renormalize)
            (tmp_path / GENERATION_CONFIG).write_text(json.dumps({**own, **drawn}))
            model.generation_config = transformers.GenerationConfig.from_pretrained(tmp_path)
            texts = ["".join(pick.choices(LETTERS, k=pick.randint(1, 16))) for _ in range(SENTENCES)]
            manifest = manifest_of(bundle.manifest, tmp_path, model.generation_config.forced_bos_token_id)
            reader = TranslateReader(manifest, driver.tokenizer, limits_of(settings, manifest))
            sentences = reader.read(TranslationRequest(texts, options=checked_options(AS_THEY_ARE))).sentences
            sources = [sentence.source_ids for sentence in sentences]
            wanted = hugging_face.run_generate(model, sources, model.generation_config.num_beams or 1)
            for text, ours, theirs in zip(texts, driver.together(sentences), wanted, strict=True):
                found.add(f"{text} under {drawn}", ours, theirs)
    assert found.mismatches == []
    assert found.sentences == FILES * SENTENCES
    assert found.score_difference > 0  # some have beams
    assert found.ties <= 1


async def test_a_server_answers_what_generate_answers():
    """The whole way of a folder: its export, a server, and a request of nothing but texts."""
    generation = {"num_beams": 4, "length_penalty": 0.5, "no_repeat_ngram_size": 2, "min_length": 3, "max_length": 16}
    foreign = dataclasses.replace(FOREIGN_MODELS["Marian"], generation=generation)
    exported = export(foreign)
    async with serving_bundle(exported.bundle, max_batch_size=16) as running:
        [listed] = (await running.stub.ListModels(pb.ListModelsRequest())).models
        answer = await running.stub.Translate(
            pb.TranslateRequest(texts=TEXTS, options=pb.DecodingOptions(**AS_THEY_ARE))
        )
    assert listed.decoding_defaults == pb.DecodingOptions(
        beam_size=4, length_penalty=0.5, no_repeat_ngram_size=2, min_length=2, max_length=15
    )
    tokenizer = exported.tokenizer
    assert isinstance(tokenizer, transformers.MarianTokenizer)
    wanted = hugging_face.run_generate(exported.model, [tokenizer(text).input_ids for text in TEXTS], 4)
    for translation, generated in zip(answer.translations, wanted, strict=True):
        [ours], [theirs] = translation.hypotheses, generated.hypotheses
        assert ours.text == tokenizer.decode(theirs.token_ids, skip_special_tokens=True)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
