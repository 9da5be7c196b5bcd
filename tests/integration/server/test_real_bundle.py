"""The command itself, on a bundle that `translane export` wrote."""

import json
import re
import subprocess
import sys

import pytest

from helpers.bundles import SOURCES, random_bundle
from helpers.real_server import serving_bundle
from translane.v1 import translation_pb2 as pb
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import BundleError
from translane_server.models.loader import make_dispatcher
from translane_server.models.version import CheckedModel, ModelDescription
from translane_server.observation.metrics import Metrics
from translane_server.settings.model_sources import ModelPlace
from translane_server.settings.server_settings import ServerSettings
from translane_server.text.tokenizer import load_tokenizer
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.workers.spares import SharedCpus


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return load_bundle(random_bundle(tmp_path_factory.mktemp("bundle") / "bundle"))


@pytest.mark.slow
async def test_a_text_translates_alone_as_it_does_among_others(bundle):
    async with serving_bundle(bundle, max_batch_size=4) as running:
        together = (await running.stub.Translate(pb.TranslateRequest(texts=SOURCES))).translations
        alone = [(await running.stub.Translate(pb.TranslateRequest(texts=[text]))).translations[0] for text in SOURCES]
    assert list(together) == alone
    assert len({translation.hypotheses[0].text for translation in alone}) > 1


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


def test_the_command_refuses_a_tampered_bundle(tmp_path):
    folder = random_bundle(tmp_path / "bundle")
    weights = next(folder.glob("*.bin"))
    content = bytearray(weights.read_bytes())
    content[100] ^= 1
    weights.write_bytes(content)
    command_line = [sys.executable, "-m", "translane", "serve", str(folder)]
    answer = subprocess.run(command_line, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert f"{weights.name} is not the file that was exported" in answer.stderr
