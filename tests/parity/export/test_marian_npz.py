"""Exports of Marian's own files translate as CTranslate2's conversion of the files. Unit tests have MarianMT's numbers.

Tokens are compared greedily and with four beams. CTranslate2 stops a beam search once there are as many ended
hypotheses as beams, which is `early_stopping`. By default it lets no translation end at its first token.
"""

import pytest
import torch

from helpers.driver import BundleDecoder
from helpers.marian_files import MarianModel, ctranslate2_translator, marian_folder, random_sentences
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.settings import ExportSettings
from translane_export.model import Transformer
from translane_export.sources.marian import read_marian
from translane_server.bundle.bundle import load_bundle
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence

SENTENCES = 200
MAX_LENGTH = 24
TIE = 1e-3  # log-probabilities; sharp attention makes some 2e-4 of rounding, and of close choices both are right
CLOSE = 0.05  # mean log-probabilities of what beam searches find that part ways at a tie
pytestmark = pytest.mark.slow  # an export takes seconds

MODELS = {
    "one vocabulary": (MarianModel(), True),
    "norms first": (MarianModel(pre_norm=True, activation="relu"), True),
    "two vocabularies": (MarianModel(tying="target", activation="relu"), False),
    "nothing tied, norm of embeddings": (MarianModel(tying="none", embedding_norm=True), False),
    "an output of its own, float16": (MarianModel(tying="source", float16=True), True),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    made = {}

    def export(name):
        if name not in made:
            scratch = tmp_path_factory.mktemp("marian")
            model, joint = MODELS[name]
            folder = marian_folder(scratch / "model", model, joint=joint)
            export_checkpoint(ExportSettings(checkpoint=folder.folder, output=scratch / "bundle", threads=1))
            made[name] = folder, load_bundle(scratch / "bundle")
        return made[name]

    return export


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_those_of_ctranslate2(exported, name, beam_size, tmp_path):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed (pip install --group bench)")
    made, bundle = exported(name)
    sentences = random_sentences(made, SENTENCES)
    options = DecodingOptions(max_length=MAX_LENGTH, beam_size=beam_size, early_stopping=True)
    with BundleDecoder(bundle, rows=32) as decoder:
        found = decoder.together([Sentence([*ids, 0], options) for ids in sentences])
    expected = ctranslate2_translator(made, tmp_path).translate_batch(
        [[made.source[id_] for id_ in ids] for ids in sentences],
        beam_size=beam_size,
        max_decoding_length=MAX_LENGTH,
        min_decoding_length=0,
        length_penalty=1.0,
        disable_unk=True,
    )
    score = _scorer(made)
    ties = 0
    for ids, (ours, *_), theirs in zip(sentences, found, expected, strict=True):
        wanted = [made.target.index(piece) for piece in theirs.hypotheses[0]]
        if list(ours.token_ids) != wanted:
            difference = abs(score(ids, ours.token_ids, beam_size) - score(ids, wanted, beam_size))
            assert difference < (TIE if beam_size == 1 else CLOSE), ids
            ties += 1
    assert ties <= (1 if beam_size == 1 else SENTENCES // 50)
    assert len({tuple(ours.token_ids) for ours, *_ in found}) >= 10, "translations differ"


def _scorer(made):
    """Scores a translation as its search ranks it: its first tokens' log-probabilities greedily, or their mean."""
    checkpoint = read_marian(made.folder)
    model = Transformer(checkpoint.config).eval()
    model.load_state_dict(checkpoint.state_dict)
    model.double()

    def score(source, target, beam_size):
        ended = [*target, 0][:MAX_LENGTH]
        fed = torch.tensor([[checkpoint.config.start_id, *ended[:-1]]])
        with torch.inference_mode():
            logits = model(torch.tensor([[*source, 0]]), torch.tensor([len(source) + 1]), fed)[0]
        chosen = logits.log_softmax(-1)[range(len(ended)), ended]
        return float(chosen.mean()) if beam_size > 1 else float((chosen - logits.log_softmax(-1).amax(-1)).sum())

    return score
