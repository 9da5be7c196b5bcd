"""docs/bring-your-own.md: its model is brought, exported and served, and translates as its own greedy loop does."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.decomposition import no_decomposition
from helpers.real_server import serving_bundle
from translane_export.bundle_writer import export_checkpoint
from translane_export.settings import ExportSettings
from translane_server.bundle.bundle import load_bundle

pytestmark = pytest.mark.slow

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
