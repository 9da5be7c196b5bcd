"""From end to end: every variant of attention, the bundled model, and a model of one's own; as in PyTorch."""

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.architectures import VARIANTS
from helpers.commands import export, train
from helpers.decomposition import no_decomposition
from helpers.real_server import AS_THEY_ARE, serving_bundle
from helpers.tiny_bundle import TINY, put_bundle
from helpers.tiny_corpus import PAIRS, write_pairs
from translane.v1 import translation_pb2 as pb
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.checkpoint import load_checkpoint
from translane_export.core.settings import ExportSettings
from translane_export.model import Transformer
from translane_export.model.greedy import greedy_decode
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import BundleError
from translane_server.text.tokenizer import load_tokenizer

MAX_LENGTH = 12
TEXTS = [source for source, _ in PAIRS[::7]] + [PAIRS[0][0] * 3, PAIRS[5][0] * 2, "猫"]
# Together they set every flag of attention, and every kind of norm.
TOGETHER: dict[str, dict[str, Any]] = {
    "of everything": VARIANTS["of everything"],
    "rotary, gated": VARIANTS["rotary, grouped, windows, softmax1"]
    | {"rotary_interleaved": True, "rotary_base": 500.0, "exact_window": True, "gated": True, "activation": "silu"},
    "relative vectors, batch norm, windows, proximal": VARIANTS["relative vectors, unclipped, by head"]
    | VARIANTS["batch norm, pre"]
    | VARIANTS["windows"]
    | VARIANTS["proximal"],
    "recurrent unit, attention biases alone": VARIANTS["recurrent unit"] | VARIANTS["attention biases alone"],
}


def flags(values):
    """Flags of the command: where {"a_switch": False} is --no-a-switch, others are --a-number=1."""
    given = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            given.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            given.append(f"--{flag}={value}")
    return given


def train_tiny(folder, variant):
    """Train a variant by the command; return its checkpoint's folder."""
    values: dict[str, Any] = {
        "train": write_pairs(folder / "train.tsv", 300, 1),
        "valid": write_pairs(folder / "valid.tsv", 12, 2),
        "output": folder / "run",
        "source_language": "zh",
        "target_language": "en",
        "source_vocabulary_size": 26,
        "target_vocabulary_size": 30,
        "preset": "tiny",
        "d_model": 32,
        "heads": 4,
        "ffn_size": 64,
        "encoder_layers": 1,
        "max_positions": 32,
        "max_tokens": 256,
        "learning_rate": 0.01,
        "warmup_steps": 10,
        "max_steps": 40,
        "valid_every": 40,
        "average": 1,
        "threads": 1,
        "device": "cpu",
        "precision": "fp32",
    }
    assert train(flags(values | variant)) == 0
    return folder / "run" / "best"


def read_model(folder):
    checkpoint = load_checkpoint(folder)
    model = Transformer(checkpoint.config)
    model.load_state_dict(checkpoint.state_dict)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
async def test_a_served_variant_translates_as_pytorch_does(tmp_path, name):
    variant = TOGETHER[name]
    checkpoint = train_tiny(tmp_path, variant)
    model = read_model(checkpoint)
    assert {key: getattr(model.config, key) for key in variant} == variant
    bundle_folder = tmp_path / "bundle"
    assert export([str(checkpoint), f"--output={bundle_folder}", "--threads=1"], {}) == 0
    bundle = load_bundle(bundle_folder)
    tokenizer = load_tokenizer(bundle)
    expected = greedy_decode(model, tokenizer.encode(TEXTS), MAX_LENGTH, complete=True)
    async with serving_bundle(bundle, max_batch_size=8) as running:
        options = pb.DecodingOptions(max_length=MAX_LENGTH, return_tokens=True, **AS_THEY_ARE)
        translations = (await running.stub.Translate(pb.TranslateRequest(texts=TEXTS, options=options))).translations
    for translation, ids in zip(translations, expected, strict=True):
        (hypothesis,) = translation.hypotheses
        ends = hypothesis.finish_reason == pb.FINISH_REASON_END_OF_SENTENCE
        assert list(hypothesis.tokens) == [*tokenizer.target_pieces(ids), *["</s>"] * ends]
        assert hypothesis.text == tokenizer.decode([ids])[0]
    assert len({translation.hypotheses[0].text for translation in translations}) > 1


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": {"heads": 4, "head_size": 4}},
        {"architecture": {"decoder_layers": 1}},
        {"architecture": {"decoder_layers": 3}},
        {"precision": "fp16"},
        {"graphs": {"encoder": {"file": "decoder.onnx"}}},
        {"graphs": {"alignment": {"file": "encoder.onnx"}}},
    ],
    ids=str,
)
async def test_a_manifest_that_does_not_fit_its_graphs_is_one_sentence(tmp_path, change):
    folder = put_bundle(tmp_path / "bundle", **merged(json.loads((TINY / "manifest.json").read_text()), change))
    with pytest.raises(BundleError, match=f"^model bundle {re.escape(str(folder))}: [^\n]+$"):
        async with serving_bundle(load_bundle(folder), max_batch_size=2):
            pass


def merged(values, changes):
    """Values with changes of some of them, at any depth."""
    return values | {
        name: merged(values[name], change) if isinstance(change, dict) else change for name, change in changes.items()
    }


# docs/bring-your-own.md: its model is brought, exported and served, and translates as its own greedy loop does.


PAGE = Path(__file__).parents[3] / "docs" / "bring-your-own.md"
TEXT = PAGE.read_text(encoding="utf-8")
MODEL, BRING, COMPARE = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SOURCE_WORDS = ["<pad>", "<sos>", "<eos>", "<unk>", "der", "die", "Hund", "Katze", "schläft", "sieht", "eine", "."]
# The special words are elsewhere, and there are more words.
TARGET_WORDS = ["the", "<unk>", "dog", "cat", "<eos>", "sleeps", "sees", "a", "'s", "<pad>", ".", "mouse", "<sos>", "é"]
SENTENCES = 100


def texts():
    """Known words, unknown ones side by side, and every kind of white space."""
    pick = random.Random(0)
    words = [*SOURCE_WORDS[4:], "Maus", "x", "DER"]
    spaces = [" ", " ", " ", "  ", "\t", "\u3000"]
    return [
        "".join(pick.choice(words) + pick.choice(spaces) for _ in range(pick.randrange(1, 12)))
        for _ in range(SENTENCES)
    ]


def run(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, str(PAGE), "exec"), names)


def varied(make: Any) -> Any:
    """A model of random weights whose translations differ: sources move its decoder much."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = make().eval()
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif "embedding" not in name:
                parameter.mul_(4 if "multihead" in name else 2)
    return model


@pytest.fixture
def _one_thread():
    """More only wait for each other on a model as small as this."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# PyTorch says that an encoder with norms first has no fast path.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("norm_first", [True, False])
async def test_the_page_brings_a_model_that_translates_as_in_the_notebook(tmp_path, norm_first):
    names: dict[str, Any] = {"source_words": SOURCE_WORDS, "target_words": TARGET_WORDS, "folder": tmp_path / "brought"}
    run(MODEL, names)
    model = varied(lambda: names["NotebookTransformer"](len(SOURCE_WORDS), len(TARGET_WORDS), norm_first=norm_first))
    run(BRING, names | {"model": model})
    with no_decomposition():
        export_checkpoint(ExportSettings(checkpoint=tmp_path / "brought", output=tmp_path / "bundle", threads=1))
    async with serving_bundle(load_bundle(tmp_path / "bundle"), max_batch_size=8) as running:
        names |= {"model": model, "address": f"127.0.0.1:{running.server.port}", "texts": texts()}
        await asyncio.to_thread(run, COMPARE, names)
    translations = [each.hypotheses[0] for each in names["translations"]]
    assert names["mismatches"] == 0
    assert len({tuple(each.tokens) for each in translations}) > SENTENCES / 5
    assert {each.finish_reason.name for each in translations} == {"END_OF_SENTENCE", "MAX_LENGTH"}
    silent = ("<pad>", "<sos>", "<eos>")
    for each in translations:
        expected = " ".join("⁇" if word == "<unk>" else word for word in each.tokens if word not in silent)
        assert each.text == expected
