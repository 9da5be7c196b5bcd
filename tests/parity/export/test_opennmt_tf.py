"""Exports of OpenNMT-tf's folders translate as CTranslate2's conversion of the same folders.

The folders and the translations are in tests/data/opennmt_tf, whose make.py needs TensorFlow and OpenNMT-tf.
CTranslate2 stops a beam search once there are as many ended hypotheses as beams, which is `early_stopping`.
"""

from __future__ import annotations

import pytest
import torch

from helpers.driver import BundleDecoder
from helpers.opennmt_tf_folders import END, NAMES, opennmt_tf_folder
from translane_export.bundle_writer import export_checkpoint
from translane_export.model import Transformer
from translane_export.settings import ExportSettings
from translane_export.sources.opennmt_tf import OpenNmtTfReader
from translane_server.bundle import load_bundle
from translane_server.options import DecodingOptions
from translane_server.sentence import Sentence

MAX_LENGTH = 16
TIE = 1e-3  # log-probabilities; of close choices both are right
CLOSE = 0.05  # mean log-probabilities of what beam searches find that part ways at a tie
pytestmark = pytest.mark.slow  # an export takes seconds


@pytest.fixture(scope="module", params=NAMES)
def exported(request, tmp_path_factory):
    made = opennmt_tf_folder(request.param)
    output = tmp_path_factory.mktemp("opennmt_tf") / "bundle"
    export_checkpoint(ExportSettings(checkpoint=made.folder, output=output, threads=1))
    return made, load_bundle(output)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_tokens_are_those_of_ctranslate2(exported, beam_size):
    made, bundle = exported
    options = DecodingOptions(max_length=MAX_LENGTH, beam_size=beam_size, early_stopping=True)
    sources = [made.source_ids(text) for text in made.expected["sources"]]
    with BundleDecoder(bundle, rows=32) as decoder:
        found = decoder.together([Sentence(ids, options) for ids in sources])
    score = _scorer(made)
    ties = 0
    for ids, (ours, *_), theirs in zip(sources, found, made.expected["ctranslate2"][str(beam_size)], strict=True):
        wanted = made.target_ids(theirs)
        if list(ours.token_ids) != wanted:
            difference = abs(score(ids, ours.token_ids, beam_size) - score(ids, wanted, beam_size))
            assert difference < (TIE if beam_size == 1 else CLOSE), ids
            ties += 1
    print(f"{made.folder.name}, {beam_size} beams: {ties} of {len(sources)} differ")
    assert ties <= (1 if beam_size == 1 else len(sources) // 50)
    assert len({tuple(ours.token_ids) for ours, *_ in found}) >= 10, "translations differ"


def _scorer(made):
    """Scores a translation as its search ranks it: its first tokens' log-probabilities greedily, or their mean."""
    checkpoint = OpenNmtTfReader().read(made.folder)
    model = Transformer(checkpoint.config).eval()
    model.load_state_dict(checkpoint.state_dict)
    model.double()

    def score(source, target, beam_size):
        ended = [*target, END][:MAX_LENGTH]
        fed = torch.tensor([[checkpoint.config.start_id, *ended[:-1]]])
        with torch.inference_mode():
            logits = model(torch.tensor([source]), torch.tensor([len(source)]), fed)[0]
        chosen = logits.log_softmax(-1)[range(len(ended)), ended]
        return float(chosen.mean()) if beam_size > 1 else float((chosen - logits.log_softmax(-1).amax(-1)).sum())

    return score


def test_a_text_is_translated(exported):
    made, bundle = exported
    with BundleDecoder(bundle) as decoder:
        (ids,) = decoder.tokenizer.encode(["the cat sat"])
        pieces = [made.source[id_] for id_ in ids if id_ != END]
        assert "".join(pieces).replace("\u2581", " ").strip() == "the cat sat"
        ((best, *_),) = decoder.together([Sentence(ids, DecodingOptions(max_length=MAX_LENGTH))])
        text = decoder.tokenizer.decode([best.token_ids])[0]
    assert isinstance(text, str)
