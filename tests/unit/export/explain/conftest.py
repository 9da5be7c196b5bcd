from pathlib import Path
from typing import Any

import pytest
from unit.export.conftest import SMALL

from helpers.bundles import random_bundle
from translane_export.core.settings import ExplainSettings
from translane_export.explain.explain import look
from translane_export.explain.translation import read_source
from translane_server.bundle.bundle import load_bundle
from translane_server.text.tokenizer import load_tokenizer

TINY: dict[str, Any] = SMALL | {"ffn_size": 24, "encoder_layers": 2, "decoder_layers": 3, "eos_bias": 1.0}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A bundle in fp32; not to be written to."""
    return random_bundle(tmp_path_factory.mktemp("tiny") / "bundle", **TINY)


def inspect(folder: Path, text: str, **settings: Any) -> Any:
    """Find out what a bundle does with a text."""
    bundle = load_bundle(folder)
    read = ExplainSettings(bundle=folder, text=text, output=Path("none"), threads=1, **settings)
    languages = {"source_language": read.source_language, "target_language": read.target_language}
    return look(bundle, read_source(bundle, load_tokenizer(bundle), text, **languages), read)


@pytest.fixture(scope="session")
def findings(tiny):
    """What the tiny bundle does with a sentence."""
    return inspect(tiny, "我有一只猫。")
