"""The page of translane explain, and the translation on it."""

import base64
import dataclasses
import hashlib
import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from unit.export.explain.conftest import inspect

from helpers.foreign_models import FOREIGN_MODELS, export
from translane_export.checks.running import decode_greedily
from translane_export.core.errors import ExportError
from translane_export.explain import page as page_module
from translane_export.explain.page import make_page
from translane_export.explain.tensors import check_size
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import SettingsError

pytestmark = pytest.mark.slow  # a bundle is made and looked into

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028"
SCRIPT = Path(page_module.__file__).with_name("page.js")


class Reader(HTMLParser):
    """Collects elements and the text of scripts."""

    def __init__(self, content):
        super().__init__()
        self.elements, self.scripts = [], []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script" and self.cdata_elem:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def hostile(findings):
    """What is found of a sentence whose text and pieces are HTML."""
    translated = findings.translated
    pieces = (HOSTILE, *translated.source.pieces[1:])
    source = dataclasses.replace(translated.source, text=HOSTILE, pieces=pieces)
    chosen = (HOSTILE, *translated.chosen_pieces[1:])
    translated = dataclasses.replace(translated, source=source, text=HOSTILE, chosen_pieces=chosen, fed_pieces=chosen)
    steps = tuple(dataclasses.replace(step, value=HOSTILE) for step in findings.text_steps)
    kinds = tuple(
        dataclasses.replace(kind, rows=(HOSTILE, *kind.rows[1:]), columns=(HOSTILE, *kind.columns[1:]))
        for kind in findings.attention.kinds
    )
    attention = dataclasses.replace(findings.attention, kinds=kinds)
    return dataclasses.replace(findings, translated=translated, text_steps=steps, attention=attention)


def read(findings):
    return Reader(make_page(findings))


def test_texts_are_no_elements(findings, hostile):
    ordinary, page = read(findings), read(hostile)
    assert len(page.scripts) == len(ordinary.scripts) == 3
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in ordinary.elements]
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    data = json.loads(page.scripts[0])
    assert data[0]["rows"][0] == HOSTILE.replace("\u2028", r"\u2028")


def test_it_asks_the_network_for_nothing(findings):
    page = read(findings)
    for _, attributes in page.elements:
        assert not {"href", "src", "srcset", "action"} & attributes.keys()
    (policy,) = [each["content"] for tag, each in page.elements if each.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(page.scripts[2].encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_it_holds_the_weights_to_four_digits(findings):
    kinds = json.loads(read(findings).scripts[0])
    for kind, expected in zip(kinds, findings.attention.kinds, strict=True):
        units = np.frombuffer(base64.b64decode(kind["weights"]), "<u2").reshape(expected.weights.shape)
        assert np.abs(units / 10_000 - expected.weights).max() <= 0.5001e-4
        assert (kind["layers"], kind["heads"]) == expected.weights.shape[:2]


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_the_script_reads_the_weights(findings):
    kind = findings.attention.kinds[0]
    (data,) = [each for each in json.loads(read(findings).scripts[0]) if each["title"] == kind.title]
    program = f"""{SCRIPT.read_text(encoding="utf-8")}
const kind = {json.dumps(data)};
kind.weights = readWeights(kind.weights);
console.log(JSON.stringify([[...weightsOf(kind, 1, 0)], [...weightsOf(kind, 1, kind.heads)]]));"""
    ran = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True, timeout=60)
    head, mean = (np.array(values).reshape(kind.weights.shape[2:]) for values in json.loads(ran.stdout))
    assert np.abs(head - kind.weights[1, 0]).max() < 1e-4
    assert np.abs(mean - kind.weights[1].mean(0)).max() < 1e-4


def test_greedy_search_is_the_servers(findings, tiny):
    bundle, translated = load_bundle(tiny), findings.translated
    ids = decode_greedily(bundle, [translated.source.ids], (), 1)[0].token_ids
    end = () if len(ids) == bundle.manifest.decoding_defaults.max_length else (bundle.manifest.special_ids.eos,)
    assert translated.chosen_ids == (*ids, *end)
    assert translated.fed_ids == (bundle.manifest.special_ids.decoder_start, *translated.chosen_ids[:-1])
    assert len(translated.fed_pieces) == len(translated.chosen_pieces) == len(translated.log_probs)
    assert findings.difference < 1e-4  # PyTorch finds the same probabilities


@pytest.mark.parametrize("name", ["M2M100", "T5"])
def test_several_languages(name):
    exported = export(FOREIGN_MODELS[name])
    found = inspect(exported.bundle.folder, "a cat", source_language="en", target_language="fr")
    assert found.difference < 1e-3
    with pytest.raises(SettingsError, match=r"^--target-language: is needed, the model has several: "):
        inspect(exported.bundle.folder, "a cat", source_language="en")
    with pytest.raises(SettingsError, match=r"^--source-language: 'tlh' is not a language of the model"):
        inspect(exported.bundle.folder, "a cat", source_language="tlh", target_language="fr")
    names = [step.name for step in found.text_steps]
    assert ("with prefix" in names) == (name == "T5")


def test_the_number_of_weights_is_bounded(tiny):
    sizes = load_bundle(tiny).manifest.architecture
    check_size(sizes, 16, 16)
    with pytest.raises(ExportError, match=r"^the sentence has 16,000,000 attention weights .* give a shorter text"):
        check_size(sizes, 1000, 1000)
