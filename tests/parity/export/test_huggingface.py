"""Exports of Hugging Face models translate as `generate` does: token for token, greedily and with four beams."""

import dataclasses
import json
import shutil

import pytest
import torch

from helpers import hugging_face
from helpers.commands import train
from helpers.driver import BundleDecoder
from helpers.foreign_models import FOREIGN_MODELS, export, hugging_face_folder
from translane_export.core.checkpoint import load_checkpoint
from translane_export.model import Transformer
from translane_export.train.vocabulary import BOS_ID, PAD_ID, Vocabulary
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence
from translane_server.text.stand_ins import STAND_INS
from translane_server.text.tokenizer import load_tokenizer

SENTENCES = 20
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")]
TEXTS = (
    "我有一只猫。",
    "今天天气很好，我们去公园吧。",
    "请问，火车站在哪里？",
    "Hello, world! 🦄",
    "他在看书。",
    "ⅷ ﷺ \u200b",
)


def check(found):
    assert found.mismatches == []
    assert found.ties <= 1


UNTIED = {"tie_word_embeddings": False}  # four tables: of each stack, of the projection, and one that nothing reads


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    ("name", "config"), [*((name, {}) for name in hugging_face.MODELS), ("M2M100, NLLB-200", UNTIED)]
)
def test_tokens_are_those_of_generate(name, config, beam_size):
    model, bundle = hugging_face.export_drawn(name, seed=1, config=config)
    check(hugging_face.compare(bundle, model, hugging_face.sources(model, SENTENCES, seed=1), beam_size))


def test_hypotheses_that_end_at_once_are_those_of_generate(tmp_path):
    """Where a model's best translation has no tokens but its language's, the first of the n best is empty."""
    model = hugging_face.draw(dataclasses.replace(hugging_face.MODELS["M2M100, NLLB-200"], ends=9.0))
    model.save_pretrained(tmp_path / "model")
    bundle = hugging_face.export(tmp_path / "model", tmp_path / "bundle")
    batch, language = hugging_face.sources(model, SENTENCES), model.generation_config.forced_bos_token_id
    options = DecodingOptions(max_length=12, beam_size=4, num_hypotheses=4)
    with BundleDecoder(bundle) as driver:
        found = driver.together([Sentence(source, options, (language,), 1) for source in batch])
    empty = 0
    wanted = hugging_face.run_generate(
        model, batch, 4, num_beams=4, num_return_sequences=4, do_sample=False, max_new_tokens=12
    )
    result = hugging_face.Comparison()
    for source, hypotheses, theirs in zip(batch, found, wanted, strict=True):
        result.add(source, hypotheses, theirs)
        empty += theirs.hypotheses[0].token_ids == (language,)
    check(result)
    assert empty > SENTENCES // 2


def test_a_fine_tuned_marian_starts_as_the_same_model_with_stand_ins(tmp_path):
    """Its pieces get other ids. For every piece that both know, the scores after any prefix are transformers'."""
    exported, folder = export(FOREIGN_MODELS["Marian"]), hugging_face_folder(FOREIGN_MODELS["Marian"])
    model, theirs = exported.model, load_tokenizer(exported.bundle)
    pieces = json.loads((folder / "vocab.json").read_text())
    (tmp_path / "pairs.tsv").write_text("".join(f"{text}\t{text} ⟨1⟩\n" for text in TEXTS[:5]))
    flags = [f"--{name}={tmp_path / 'pairs.tsv'}" for name in ("train", "valid")]
    flags += [f"--init={folder}", f"--output={tmp_path / 'run'}", "--source-language=zh", "--target-language=en"]
    flags += ["--max-steps=1", "--valid-every=1", "--average=1", "--learning-rate=1e-12", "--device=cpu"]
    assert train([*flags, "--stand-ins=0.5", "--threads=1", "--dropout=0", "--precision=fp32"]) == 0
    checkpoint = load_checkpoint(tmp_path / "run" / "best")
    ours = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    assert set(ours.stand_ins(STAND_INS).values()) == set(STAND_INS)
    assert {PAD_ID, BOS_ID} <= {*checkpoint.config.suppressed_ids}  # the start has the scores of the padding
    _, target_pieces = checkpoint.tokenizer.sentencepiece_models()
    known = {piece: pieces.get(piece) for piece in Vocabulary(target_pieces).pieces()}
    new, old = zip(*[(place, id_) for place, id_ in enumerate(known.values()) if id_ is not None], strict=True)
    assert len(new) > 200
    net = Transformer(checkpoint.config).eval()
    net.load_state_dict(checkpoint.state_dict)
    for text in TEXTS[:5]:
        (source,), (theirs_source,) = ours.encode([text]), theirs.encode([text])
        target = [new[place] for place in range(5, 25)]
        with torch.no_grad():
            scores = net(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS_ID, *target]]))
            expected = model(
                input_ids=torch.tensor([theirs_source]),
                decoder_input_ids=torch.tensor([[pieces["<pad>"], *(old[new.index(each)] for each in target)]]),
            ).logits
        torch.testing.assert_close(scores[..., list(new)], expected[..., list(old)], rtol=1e-4, atol=1e-4)


def test_a_checkpoint_whose_ids_are_not_its_model_s_is_not_fine_tuned(tmp_path, capsys):
    folder = shutil.copytree(hugging_face_folder(FOREIGN_MODELS["Marian"]), tmp_path / "model")
    pieces = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps({**pieces, "▁more": len(pieces) + 1000}))
    (tmp_path / "pairs.tsv").write_text(f"{TEXTS[0]}\t{TEXTS[0]}\n")
    flags = [f"--{name}={tmp_path / 'pairs.tsv'}" for name in ("train", "valid")]
    assert train([*flags, f"--init={folder}", f"--output={tmp_path / 'run'}"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
