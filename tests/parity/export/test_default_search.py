"""Requests without options are searched as `generate` searches without arguments: token for token, score for score."""

import dataclasses

import pytest
import transformers

from helpers import default_search, hugging_face
from helpers.foreign_models import FOREIGN_MODELS, export
from helpers.real_server import AS_THEY_ARE, serving_bundle
from translane.v1 import translation_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")]

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "What a server does, it says.",
    "a",
    "Twice and twice again",
    "I have a cat.",
]


@pytest.mark.parametrize(
    ("name", "renormalize"),
    [*((name, False) for name in default_search.NAMES), *((name, True) for name in default_search.RENORMALIZED)],
)
def test_random_generation_configs(name, renormalize):
    found = default_search.compare(name, files=4, sentences=6, renormalize=renormalize, seed=1)
    assert found.mismatches == []
    assert found.sentences == 24
    assert found.score_difference > 0  # some have beams
    assert found.ties <= 1
    assert found.score_difference < 1e-4


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
    for translation, theirs in zip(answer.translations, wanted, strict=True):
        [ours] = translation.hypotheses
        assert ours.text == tokenizer.decode(theirs.token_ids, skip_special_tokens=True)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
