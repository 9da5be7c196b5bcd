"""Exports of Hugging Face models translate as `generate` does: token for token, greedily and with four beams.

`python benchmarks/architectures.py` counts over more sentences, and at full size.
"""

import shutil
from pathlib import Path

import pytest
import transformers

from helpers import hugging_face
from translane_export.__main__ import main
from translane_server.bundle import load_bundle
from translane_server.tokenizer import load_tokenizer

SENTENCES = 20
FIXTURE = Path(__file__).resolve().parents[4] / "shared" / "data" / "fixtures" / "opus-mt-zh-en"
pytestmark = pytest.mark.slow  # an export takes seconds
TEXTS = (
    "我有一只猫。",
    "今天天气很好，我们去公园吧。",
    "请问，火车站在哪里？",
    "Hello, world! 🦄",
    "他在看书。",
    "ⅷ ﷺ \u200b",
)


def check(found):
    assert found.mismatches == []
    assert found.ties <= 1
    assert found.score_difference < 1e-4


@pytest.fixture(scope="module", params=hugging_face.MODELS)
def exported(request, tmp_path_factory):
    """A model, and the bundle it was exported as."""
    folder = tmp_path_factory.mktemp("model")
    model = hugging_face.draw(hugging_face.MODELS[request.param], seed=1)
    model.save_pretrained(folder / "saved")
    return model, hugging_face.export(folder / "saved", folder / "bundle")


@pytest.mark.parametrize("beam_size", [1, 4])
def test_tokens_are_those_of_generate(exported, beam_size):
    model, bundle = exported
    check(hugging_face.compare(bundle, model, hugging_face.sources(model, SENTENCES, seed=1), beam_size))


@pytest.mark.filterwarnings("ignore:Recommended")  # of sacremoses, which normalises punctuation for other models
@pytest.mark.skipif(not FIXTURE.exists(), reason="the files of opus-mt-zh-en are not on this machine")
def test_a_folder_with_its_tokenizer(tmp_path, capsys):
    """The whole way, from the files of a published model but for its weights."""
    published = {"vocab_size": 65001, "pad_token_id": 65000, "decoder_start_token_id": 65000}
    drawn = hugging_face.MODELS["Marian"]
    small = hugging_face.Model(
        "Marian",
        {**drawn.config, **published, "d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2},
    )
    model = hugging_face.draw(small)
    model.generation_config.bad_words_ids = [[65000]]
    model.save_pretrained(tmp_path / "model")
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        shutil.copyfile(FIXTURE / name, tmp_path / "model" / name)

    assert main([str(tmp_path / "model"), "-o", str(tmp_path / "bundle")]) == 0, capsys.readouterr().err

    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.manifest.special_ids.unk == 1
    tokenizer, theirs = load_tokenizer(bundle), transformers.MarianTokenizer.from_pretrained(tmp_path / "model")
    sources = tokenizer.encode(TEXTS)
    assert sources == [theirs(text)["input_ids"] for text in TEXTS]
    for beam_size in (1, 4):
        check(hugging_face.compare(bundle, model, sources, beam_size))
