"""What a bundle that `translane export` wrote is refused for."""

import json
import re

import pytest

from helpers.bundles import random_bundle
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import BundleError
from translane_server.models.loader import CheckedModel, ModelDescription, make_dispatcher
from translane_server.observation.metrics import Metrics
from translane_server.settings.model_sources import ModelPlace
from translane_server.settings.server_settings import ServerSettings
from translane_server.text.tokenizer import load_tokenizer
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.workers.spares import SharedCpus


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": {"heads": 4, "head_size": 8}},
        {"architecture": {"decoder_layers": 1}},
        {"architecture": {"decoder_layers": 3}},
        {"precision": "fp16"},
        {"graphs": {"encoder": "decoder.onnx"}},
        {"graphs": {"alignment": "encoder.onnx"}},
    ],
    ids=str,
)
async def test_a_manifest_that_does_not_fit_its_graphs_is_one_sentence(tmp_path, change):
    folder = random_bundle(tmp_path / "bundle")
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, value in change.items():
        if name == "graphs":
            for graph, file in value.items():
                manifest["graphs"][graph]["file"] = file
        else:
            manifest[name] = manifest[name] | value if isinstance(value, dict) else value
    (folder / "manifest.json").write_text(json.dumps(manifest))

    async def start():
        bundle = load_bundle(folder)
        settings = ServerSettings(model=(ModelPlace(folder),), max_batch_size=2).of_model("broken")
        limits = RequestLimits(256, 1024, TokenLimits(source=32, target=32, default_max_length=32), max_beam_size=2)
        described = ModelDescription("broken", "1", "", bundle.manifest, "cpu", limits)
        model = CheckedModel(described, bundle, load_tokenizer(bundle), "")
        dispatcher, _ = make_dispatcher(settings, model, Metrics().of_model("broken"), 1, SharedCpus(1))
        await dispatcher.start()

    with pytest.raises(BundleError, match=f"^model bundle {re.escape(str(folder))}: [^\n]+$"):
        await start()
