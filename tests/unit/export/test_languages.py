"""Settings name the languages that a checkpoint does not; tensors that no weight is are refused by what they are."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import foreign_folders
from helpers.bundles import SMALL_SIZES
from helpers.commands import export as main
from helpers.refusals import refusal
from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import check_weight
from translane_export.core.languages import choose_languages, is_tag
from translane_export.core.tokenizer_files import TokenizerFiles
from translane_export.core.torch_model import build_model
from translane_export.model import Transformer, TransformerConfig
from translane_export.sources import foreign_tokenizers
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import JsonTokenizerEntry, Languages, LanguageTemplates, LanguageTokens

WHERE = Path("model")
PREFIXES = {"en": {"de": "translate English to German: ", "fr": "translate English to French: "}}
T5 = Languages(source=("en",), target=("de", "fr"), templates=LanguageTemplates(pair_prefixes=PREFIXES))


def choose(languages, **settings):
    return choose_languages(languages, checkpoint=WHERE, **settings)


TAGS = ("zh", "pt-BR", "zh-Hant-TW", "sr-Latn", "es-419", "ast", "zh-cmn", "de-CH-1901", "en-x-mine", "und", "EN")
NO_TAGS = ("", "z", "zh_CN", "zh-", "-zh", "zh Hans", "chinese-and-more-", "x", "汉", "zh\n", "1a")


def test_tags():
    assert [text for text in (*TAGS, *NO_TAGS) if is_tag(text)] == [*TAGS]


FROM, TO = LanguageTokens(source_prefix=(0,)), LanguageTokens(forced=(3,))
TEMPLATES = LanguageTemplates(source={"und": FROM}, target={"und": TO})
UNKNOWN = Languages(source=("und",), target=("und",), templates=TEMPLATES)
FRENCH, DUTCH = PREFIXES["en"]["fr"], "translate English to Dutch: "


@pytest.mark.parametrize(
    ("languages", "settings", "source", "target", "templates"),
    [
        (UNKNOWN, {"source": "en", "target": "sr"}, "en", ["sr"], {"source": {"en": FROM}, "target": {"sr": TO}}),
        (T5, {"source": "en-GB"}, "en-GB", ["de", "fr"], {"pair_prefixes": {"en-GB": PREFIXES["en"]}}),
        (T5, {"source_prefix": FRENCH}, "en", ["fr"], {"text_prefix": FRENCH}),
        (T5, {"source_prefix": FRENCH.strip()}, "en", ["fr"], {"text_prefix": FRENCH.strip()}),
        # another prefix is of languages that settings name
        (T5, {"source_prefix": DUTCH}, "und", ["und"], {"text_prefix": DUTCH}),
        (T5, {"source_prefix": ""}, "und", ["und"], {"text_prefix": ""}),
        (T5, {"source_prefix": DUTCH, "source": "en", "target": "nl"}, "en", ["nl"], {"text_prefix": DUTCH}),
        (T5, {"source_prefix": "", "source": "en", "target": "nl"}, "en", ["nl"], {"text_prefix": ""}),
    ],
)
def test_templates_are_of_the_languages_that_are_chosen(languages, settings, source, target, templates):
    found = choose(languages, **settings)
    assert (found.source, [*found.target]) == ((source,), target)
    assert found.templates == LanguageTemplates(**templates)


def test_one_tag_does_not_stand_for_several_languages(tmp_path):
    languages = foreign_tokenizers.m2m100(foreign_folders.m2m100(tmp_path), {}).languages
    with pytest.raises(ExportError, match="--source-language is en, and the model translates from 100 languages"):
        choose(languages, source="en")
    with pytest.raises(ExportError, match="--target-language is nl, and the model translates to 2 languages"):
        choose(T5, target="nl")


def test_a_checkpoint_that_names_no_language():
    nameless = Languages(source=("zh Hans",), target=("en",))
    with pytest.raises(ExportError, match=r"model: its source_language is 'zh Hans'.*--source-language sets another"):
        choose(nameless)
    assert choose(nameless, source="zh-Hans").source == ("zh-Hans",)


@pytest.mark.slow
def test_a_bundle_is_named_by_the_languages_that_are_set(checkpoint, tmp_path, capsys):
    folder, output = shutil.copytree(checkpoint, tmp_path / "model"), tmp_path / "bundle"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"source_language": "", "target_language": "und"}))
    flags = ["--source-language", "zh-Hans", "--target-language", "en-GB", "--source-prefix", "好"]
    assert main([str(folder), "-o", str(output), *flags]) == 0, capsys.readouterr().err
    manifest = load_bundle(output).manifest
    assert (manifest.name, manifest.version, manifest.license) == ("zh-Hans-en-GB", "1", "CC0-1.0")
    assert (manifest.source_languages, manifest.target_languages) == (("zh-Hans",), ("en-GB",))
    assert manifest.language_templates.text_prefix == "好"
    assert "zh-Hans → en-GB" in (output / "README.md").read_text(encoding="utf-8")


ONES = torch.ones(4, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_weights(dtype):
    weight = ONES.to(dtype)
    for tensor in (weight, weight[1:, :3], weight.T, torch.nn.Parameter(weight), weight[:0]):
        check_weight(tensor, "")


OTHERS: dict[str, Callable[[], Any]] = {
    "empty (on the device meta)": lambda: ONES.to("meta"),
    "sparse (sparse_coo)": ONES.to_sparse,
    "quantized (qint8)": lambda: torch.quantize_per_tensor(ONES, 0.1, 0, torch.qint8),
    "complex64": lambda: ONES.to(torch.complex64),
    "bool": lambda: ONES > 0,
    "float8_e4m3fn": lambda: ONES.to(torch.float8_e4m3fn),
    "int64": ONES.long,
    "[1000000, 1000000] by repeating fewer numbers": lambda: torch.ones(1).expand(10**6, 10**6),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", OTHERS)
def test_a_tensor_that_is_no_weight(kind):
    assert refusal(ExportError, check_weight, OTHERS[kind](), "model.bin: the tensor a") == (
        f"model.bin: the tensor a is {kind}, and weights are dense tensors of float32, float16, bfloat16 or float64"
    )


CONFIG = TransformerConfig(**SMALL_SIZES | {"decoder_layers": 1})
IDS = torch.tensor([[4, 5, 6, 3]])


def logits(state):
    checkpoint = Checkpoint(
        config=CONFIG, state_dict=state, tokenizer=TokenizerFiles(JsonTokenizerEntry(file=""), {}),
        languages=Languages(source=("de",), target=("en",)), samples=(), metadata={},
    )  # fmt: skip
    with torch.inference_mode():
        return build_model(checkpoint)(IDS, torch.tensor([4]), IDS)


def test_a_checkpoint_of_convolutions_is_that_of_linear_layers():
    state = Transformer(CONFIG).state_dict()
    convolutions = {
        name: tensor[..., None] if tensor.ndim == 2 and ("_proj." in name or name.startswith("output")) else tensor
        for name, tensor in state.items()
    }
    assert sum(tensor.ndim == 3 for tensor in convolutions.values()) == 17
    assert torch.equal(logits(convolutions), logits(state))


@pytest.mark.parametrize("shape", [(16, 16, 2), (16, 1, 16), (1, 16, 16), (16, 16, 1, 1), (8, 16, 1)])
def test_other_convolutions_do_not_fit(shape):
    name = "encoder.layers.0.self_attention.q_proj.weight"
    with pytest.raises(ExportError, match=f"do not fit its configuration: size mismatch for {name}"):
        logits({**Transformer(CONFIG).state_dict(), name: torch.ones(shape)})
