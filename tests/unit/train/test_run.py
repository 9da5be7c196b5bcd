"""Whole runs of `translane train`, tiny."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sacrebleu
import torch

from helpers.commands import train as main
from translane_export.core.checkpoint import load_checkpoint, load_tensors, save_tensors
from translane_export.train.batches import Batch, EncodedPair, collate
from translane_export.train.evaluate import score
from translane_export.train.log import read_history
from translane_export.train.settings import TrainSettings
from translane_export.train.update import learning_rate


def _assert_same_run(one: Path, other: Path) -> None:
    """Weights, moments, random states and kept checkpoints are equal bit for bit."""
    for name in ("resume.safetensors", "best/model.safetensors", "latest/model.safetensors"):
        ours, theirs = load_tensors(one / name).tensors, load_tensors(other / name).tensors
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), name
    assert sorted(path.name for path in (one / "weights").iterdir()) == sorted(
        path.name for path in (other / "weights").iterdir()
    )


@pytest.mark.slow
def test_a_run_learns_and_leaves_a_complete_checkpoint(run_flags, tmp_path, capfd):
    flags = run_flags(max_steps=120, valid_every=40, max_tokens=512, data_licence="CC0", dropout=0.0)
    assert main(flags) == 0
    out, err = capfd.readouterr()
    assert "ended: 120 steps are done, after 120 steps" in out
    assert re.search(r"step 120, epoch \d+, .* min: valid BLEU \d+\.\d\d, chrF", err)
    checkpoint = load_checkpoint(tmp_path / "run" / "best")
    assert checkpoint.metadata["valid_bleu"] > 50
    assert checkpoint.metadata["data_licence"] == "CC0"
    assert checkpoint.metadata["chrf_signature"].startswith("nrefs:1|")
    assert checkpoint.metadata["settings"]["train"] == "train.tsv"
    assert (checkpoint.languages.source, checkpoint.languages.target) == (("zh",), ("en",))
    assert len(checkpoint.samples) == 12
    history = read_history(tmp_path / "run" / "history.jsonl")
    # the last window of 50 steps ends with the run
    assert [record["step"] for record in history if record["kind"] == "step"] == [40, 50, 80, 100, 120]
    validations = [record for record in history if record["kind"] == "validation"]
    assert [record["step"] for record in validations] == [40, 80, 120]
    assert validations[-1]["best_bleu"] == pytest.approx(checkpoint.metadata["valid_bleu"], abs=0.01)
    losses = [record["loss"] for record in history if record["kind"] == "step"]
    assert losses[-1] < losses[0] / 2
    assert [record["seconds"] for record in history] == sorted(record["seconds"] for record in history)

    test, output = tmp_path / "valid.tsv", tmp_path / "translations.txt"
    flags = ["--evaluate", str(tmp_path / "run" / "best"), "--test", str(test), "--output-translations"]
    assert main([*flags, str(output)]) == 0
    assert output.read_text(encoding="utf-8").count("\n") == test.read_text(encoding="utf-8").count("\n")
    out = capfd.readouterr().out
    assert re.match(r"BLEU \d+\.\d\d  nrefs:1\|case:mixed\|.*\nchrF \d+\.\d\d  nrefs:1\|", out)
    assert float(out.split()[1]) == pytest.approx(checkpoint.metadata["valid_bleu"], abs=0.01)
    assert main([*flags, str(tmp_path)]) == 1
    assert capfd.readouterr().err.endswith("cannot be written (Is a directory)\n")


@pytest.mark.slow
def test_another_seed_gives_another_run(run_flags, tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        assert main(run_flags(name, seed=seed)) == 0
    ours, others = (load_tensors(tmp_path / name / "resume.safetensors").tensors for name in ("a", "b"))
    assert not all(torch.equal(ours[key], others[key]) for key in ours)


@pytest.mark.slow
@pytest.mark.parametrize("norm_kind", ["layer", "batch"])
def test_batches_have_all_lengths_where_a_norm_sees_them(run_flags, monkeypatch, norm_kind):
    spreads: list[int] = []

    def seen(pairs: list[EncodedPair]) -> Batch:
        spreads.append(max(pair.width for pair in pairs) - min(pair.width for pair in pairs))
        return collate(pairs)

    monkeypatch.setattr("translane_export.train.update.collate", seen)
    assert main(run_flags(norm_kind=norm_kind, max_steps=10)) == 0
    assert (sum(spreads) / len(spreads) > 2.5) == (norm_kind == "batch"), spreads


@pytest.mark.slow
def test_a_run_killed_in_full_flight_resumes_exactly(run_flags, tmp_path):
    flags = run_flags("killed", max_steps=400, dropout=0.3)
    state = tmp_path / "killed" / "resume.safetensors"
    process = subprocess.Popen(
        [sys.executable, "-m", "translane", "train", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    deadline = time.monotonic() + 120
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)  # somewhere between two validations
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

    resumed_at = _step(state)
    assert 0 < resumed_at < 400
    last = str(resumed_at + 35)
    assert main([*run_flags("killed", dropout=0.3, resume=True, max_steps=last)]) == 0
    assert main([*run_flags("whole", dropout=0.3, max_steps=last)]) == 0
    assert _step(state) == int(last)
    _assert_same_run(tmp_path / "killed", tmp_path / "whole")
    killed, whole = (_losses(tmp_path / name / "history.jsonl") for name in ("killed", "whole"))
    assert killed == whole
    assert [step for step, _loss in killed] == sorted({step for step, _loss in killed})


@pytest.mark.slow
def test_weights_that_no_average_takes_go(run_flags, tmp_path):
    for steps in (15, 35, 45):  # each time between two validations
        assert main(run_flags(max_steps=steps, resume=True)) == 0
    kept = sorted(path.name for path in (tmp_path / "run" / "weights").iterdir())
    assert kept == [f"step-{step:07d}.safetensors" for step in (30, 40, 45)]


def _losses(history: Path) -> list[tuple[int, float]]:
    return [(record["step"], record["loss"]) for record in read_history(history) if record["kind"] == "step"]


def _step(state: Path) -> int:
    return int(re.search(r'"step": (\d+)', load_tensors(state).note)[1])  # type: ignore[index]


@pytest.mark.slow
def test_a_run_is_neither_overwritten_nor_mixed(run_flags, tmp_path, capfd):
    assert main(run_flags(max_steps=12)) == 0
    assert main(run_flags(max_steps=12)) == 1
    assert "holds a run already; --resume continues it" in capfd.readouterr().err
    assert main(run_flags(max_steps=20, resume=True, seed=2)) == 1
    assert "cannot be resumed with other settings (seed was 1, is 2)" in capfd.readouterr().err
    state = tmp_path / "run" / "resume.safetensors"
    stored = load_tensors(state)
    save_tensors(state, {name: tensor for name, tensor in stored.tensors.items() if "q_proj" not in name}, stored.note)
    assert main(run_flags(max_steps=20, resume=True)) == 1
    assert "cannot be resumed, as its weights are not this model's (" in capfd.readouterr().err
    state.write_bytes(state.read_bytes()[:500])
    assert main(run_flags(max_steps=20, resume=True)) == 1
    assert "cannot be resumed" in capfd.readouterr().err


@pytest.mark.slow
def test_a_run_that_diverges_fails_and_keeps_its_last_good_state(run_flags, tmp_path, capfd, monkeypatch):
    assert main(run_flags("huge", learning_rate=1e38, warmup_steps=0)) == 1
    assert re.search(r"step \d+: the (loss|gradient norm) is not finite; lower --learning-rate", capfd.readouterr().err)
    assert not (tmp_path / "huge" / "best").exists()

    assert main(run_flags(max_steps=10)) == 0
    state = tmp_path / "run" / "resume.safetensors"
    good = state.read_bytes()
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(torch.inf))
    assert main(run_flags(max_steps=25, resume=True)) == 1
    assert "step 11: the gradient norm is not finite; lower --learning-rate" in capfd.readouterr().err
    assert state.read_bytes() == good


@pytest.mark.slow
def test_epochs_and_patience_end_a_run(run_flags, tmp_path, capfd):
    assert main(run_flags("epochs", max_steps=0, max_epochs=2, valid_every=1000)) == 0
    assert "ended: 2 epochs are done" in capfd.readouterr().out
    assert (tmp_path / "epochs" / "best" / "model.safetensors").exists()
    # at this rate nothing is learnt, so BLEU stays where it is
    assert main(run_flags("patience", max_steps=0, patience=2, valid_every=2, learning_rate=1e-9)) == 0
    assert "ended: 2 validations without a better BLEU, after 6 steps" in capfd.readouterr().out


@pytest.mark.slow
def test_joint_tied_bpe_in_bf16(run_flags, tmp_path):
    joint = {"vocabulary": "bpe", "joint_vocabulary": True, "source_vocabulary_size": 60, "tie_embeddings": "three-way"}
    assert main(run_flags(**joint, precision="bf16", sampling_alpha=0, max_steps=5, norm="pre")) == 0
    checkpoint = load_checkpoint(tmp_path / "run" / "best")
    source, target = checkpoint.tokenizer.sentencepiece_models()
    assert source.read_bytes() == target.read_bytes()
    assert checkpoint.config.source_vocab_size == checkpoint.config.target_vocab_size == 60


@pytest.mark.slow
def test_word_vectors_start_the_embeddings(run_flags, tmp_path):
    (tmp_path / "vectors.txt").write_text("1 32\n猫 " + " ".join(["1"] * 16 + ["-1"] * 16) + "\n", encoding="utf-8")
    flags = run_flags(source_word_vectors=tmp_path / "vectors.txt", vocabulary="char", sampling_alpha=0, max_steps=1)
    assert main([*flags, "--learning-rate=1e-12"]) == 0
    weights = load_checkpoint(tmp_path / "run" / "best").state_dict["encoder.embedding.tokens.weight"]
    assert any(torch.allclose(row, row[0] * torch.tensor([1.0] * 16 + [-1.0] * 16)) for row in weights[4:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "code", "sentence"),
    [
        ({"train": "none.tsv"}, 1, "none.tsv: the file is missing"),
        ({"target_column": 7}, 1, "train.tsv:1: 3 columns, at least 8 needed"),
        ({"target_vocabulary_size": 9000}, 1, "no unigram vocabulary of 9,000 pieces"),
        ({"max_length": 1}, 1, "every pair is longer than --max-length 1"),
        ({"max_positions": 2}, 1, "every pair is longer than --max-positions 2"),
        ({"max_steps": 1, "learning_rate": 1e39, "warmup_steps": 0}, 1, "step 1: the largest weight is not finite"),
        ({"source_word_vectors": "none.vec"}, 1, "word vectors: "),
        ({"output": "/dev/null/run"}, 1, "/dev/null/run"),
        ({"dropout": 2}, 2, "--dropout"),
        ({"max_minutes": 1e-6}, 1, "1e-06 minutes are over before the first step"),
        pytest.param(
            {"device": "cuda"},
            2,
            "PyTorch finds no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU"),
        ),
    ],
)
def test_failures_are_one_sentence(run_flags, capfd, overrides, code, sentence):
    assert main(run_flags(**overrides)) == code
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("translane train: ")
    assert sentence in last


@pytest.mark.parametrize(
    ("warmup", "total", "cooldown", "rates"),
    [
        (100, 0, 0, {1: 0.01, 50: 0.5, 100: 1.0, 400: 0.5}),
        (0, 0, 0, {1: 1.0, 4: 0.5}),  # without warm-up the first step has the peak
        (9, 100, 19, {1: 1 / 9, 36: 0.5, 81: 1 / 3, 91: (9 / 91) ** 0.5 / 2, 100: 0.3 / 20, 101: 0}),
    ],
)
def test_rates_of_learning(warmup, total, cooldown, rates):
    """A cool-down ends at almost nothing, and changes nothing before."""
    steps = {"warmup_steps": warmup, "max_steps": total, "cooldown_steps": cooldown}
    settings = TrainSettings.model_construct(learning_rate=1.0, **steps)
    assert {step: learning_rate(settings, step) for step in rates} == pytest.approx(rates)


def test_scores_are_sacrebleus_and_signed():
    hypotheses = ["the cat sat on the mat .", "hello there my friend"]
    references = ["the cat sat on a mat .", "hello there my friend"]
    evaluation = score(hypotheses, references, "en")
    assert evaluation.bleu == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert evaluation.chrf == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert evaluation.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert evaluation.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert f"BLEU {evaluation.bleu:.2f}  nrefs:1" in str(evaluation)


@pytest.mark.parametrize(
    ("language", "tokenizer"), [("zh-Hant", "zh"), ("ja", "char"), ("KO-kr", "char"), ("th", "char"), ("de", "13a")]
)
def test_the_target_language_chooses_the_tokens(language, tokenizer):
    evaluation = score(["我有一只猫。"], ["我有一只小猫。"], language)
    assert f"|tok:{tokenizer}|" in evaluation.bleu_signature
    assert (evaluation.bleu > 30) == (tokenizer != "13a")
