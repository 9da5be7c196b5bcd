"""A model of random weights is the same one for both engines, and ends no sentence where it is not to."""

import random
from typing import Any

import pytest

from benchmarks.engines.ctranslate2_decoder import CTranslate2Decoder
from benchmarks.engines.translane_decoder import TranslaneDecoder
from benchmarks.models.benchmarked import BenchmarkedModel
from benchmarks.models.ctranslate2_conversion import convert_bundle
from benchmarks.models.random_bundles import export_random, random_words
from benchmarks.models.workload import Pair, make_load
from translane_export.model import TransformerConfig
from translane_server.bundle import load_bundle

VOCABULARY, LONGEST = 90, 12
SMALL: dict[str, Any] = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "heads": 2, "ffn_size": 48}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of random weights as Translane's bundle, and converted from it for CTranslate2."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed (pip install --group bench)")
    config = TransformerConfig(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY, **SMALL)
    folder = tmp_path_factory.mktemp("random")
    bundle, converted = folder / "bundle", folder / "converted"
    export_random(config, bundle, samples=random_words()[:2], ends=-100.0, precision="fp32", default_max_length=8)
    convert_bundle(bundle, converted, "float32")
    return BenchmarkedModel(bundle, converted)


@pytest.mark.slow  # the export takes several seconds
@pytest.mark.parametrize("beam_size", [1, 4])
def test_both_engines_translate_alike_and_never_end(model, beam_size):
    end = load_bundle(model.bundle).manifest.special_ids.eos
    pick = random.Random(0)
    pairs = [Pair((*pick.choices(range(4, VOCABULARY), k=5), end), LONGEST) for _ in range(6)]
    load = make_load(pairs, len(pairs), 2, beam_size, fixed=False, max_length=LONGEST)
    rows: dict[str, Any] = {"rows": 2 * beam_size, "source_tokens": 8, "target_tokens": LONGEST, "ends": True}
    ours = TranslaneDecoder(model.bundle, replicas=1, threads=1, **rows)
    theirs = CTranslate2Decoder(model.converted, workers=1, threads=1, compute_type="float32")
    decoders: list[Any] = [ours, theirs]
    found = [decoder.token_ids(decoder.decode(decoder.prepare(load))) for decoder in decoders]
    for decoder in decoders:
        decoder.close()
    assert found[0] == found[1]
    assert {len(ids) for ids in found[0]} == {LONGEST}
