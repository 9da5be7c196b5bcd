"""A sentence that uses a shortlist has its own list of tokens, whatever the lists of the sentences beside it.

Random models are exported with random shortlists. The oracle is PyTorch's model with the logits of all other tokens at
-inf, and the log-probabilities over the list. In the batch, sentences with lists and without join and leave.
"""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.batch_invariance import Bag, check
from helpers.bundles import bundle_model, random_bundle
from helpers.driver import BundleDecoder
from translane_export.bundle_writer import export_checkpoint
from translane_export.combinations import complete
from translane_export.core.settings import ExportSettings
from translane_export.sources.readers import find_reader
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import SearchDefaults
from translane_server.bundle.shortlist import load_shortlist
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow

MODEL: dict[str, Any] = {"eos_bias": 2.0, "d_model": 48, "ffn_size": 96, "heads": 3}
LENGTH = 24


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """A file of rules over the tokens of the random model: some tokens always, some for each source token."""
    folder = tmp_path_factory.mktemp("rules")
    bundle = load_bundle(random_bundle(folder / "bundle", **MODEL))
    tokenizer, sizes = load_tokenizer(bundle), bundle.manifest.architecture
    source = tokenizer.source_pieces(range(sizes.source_vocab_size))
    target = tokenizer.target_pieces(range(sizes.target_vocab_size))
    draw = random.Random(3)
    lines = ["\t" + " ".join(draw.sample(target[4:], 6))]
    lines += [f"{piece}\t{' '.join(draw.sample(target[4:], 3))}" for piece in source]
    lines += [f"{' '.join(draw.sample(source, 2))}\t{draw.choice(target[4:])}" for _ in range(300)]
    path = folder / "rules.vmap"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def make_bundle(tmp_path, rules, precision, **model):
    export = {"shortlist": rules, "precision": precision}
    return load_bundle(random_bundle(tmp_path / "bundle", export=export, **MODEL, **model))


def sources(bundle, count, seed=0):
    draw, size = random.Random(seed), bundle.manifest.architecture.source_vocab_size
    eos = bundle.manifest.special_ids.eos
    return [[*draw.choices(range(4, size), k=draw.randint(1, 20)), eos] for _ in range(count)]


def own_list(bundle, source, more=()):
    ids = bundle.manifest.special_ids
    return load_shortlist(bundle).tokens(source, (ids.unk, ids.bos, ids.eos, *more))


def decoder(bundle, **sizes):
    return BundleDecoder(bundle, source_capacity=24, target_capacity=LENGTH + 8, **sizes)


@pytest.mark.parametrize("allowed", [[(), (), ()], [(), None, ()]], ids=["lists", "a row without a list"])
def test_steps_ahead_choose_what_single_steps_choose(tmp_path, rules, allowed):
    steps = 9
    bundle = make_bundle(tmp_path, rules, "fp32")
    backend = OrtBackend(Sessions(bundle, threads=1), rows=4, source_capacity=24, target_capacity=steps)
    inputs = sources(bundle, len(allowed))
    found = []
    for decode_ahead in (GraphBackend.decode_ahead, OrtBackend.decode_ahead):
        rows = range(len(inputs))
        for row in rows:
            backend.encode_ahead([inputs[row]])
            backend.enter([0], [row], [allowed[row]])
        start = np.full(len(inputs), bundle.manifest.special_ids.decoder_start)
        tokens = decode_ahead(backend, start, np.zeros(len(inputs), np.int32), steps, keep=0)
        found.append((tokens.tolist(), [backend.align(row, 0, [row] * steps).tobytes() for row in rows]))
    assert found[0] == found[1]
    backend.close()


@pytest.mark.parametrize("default", [True, None])
def test_a_bundle_that_is_exported_again_keeps_its_shortlist(tmp_path, rules, default):
    export = {"shortlist": rules, "precision": "int8", "decoding_defaults": SearchDefaults(use_shortlist=default)}
    first = random_bundle(tmp_path / "first", export=export, **MODEL)
    export_checkpoint(ExportSettings(checkpoint=first, output=tmp_path / "again", threads=1))
    assert load_bundle(tmp_path / "again").manifest.decoding_defaults.use_shortlist == default
    for name in ("shortlist.dat", "shortlist.onnx", "decoder.onnx", "weights.bin"):
        assert (tmp_path / "again" / name).read_bytes() == (first / name).read_bytes(), name
    halves = ExportSettings(checkpoint=first, output=tmp_path / "halves", precision="fp16")  # which has none
    completed = complete(halves, find_reader(first).read(first))
    assert completed.decoding_defaults == SearchDefaults()


def test_greedy_search_is_pytorchs_over_the_list(tmp_path, rules):
    bundle, model = make_bundle(tmp_path, rules, "fp32"), bundle_model(**MODEL).eval()
    inputs, ids = sources(bundle, 40), bundle.manifest.special_ids
    options = DecodingOptions(max_length=LENGTH, shortlist=True)
    with decoder(bundle) as engine:
        found = engine.together([Sentence(source, options) for source in inputs])
    for source, (best,) in zip(inputs, found, strict=True):
        allowed = own_list(bundle, source)
        outside = torch.full((bundle.manifest.architecture.target_vocab_size,), -torch.inf)
        outside[torch.from_numpy(allowed.copy())] = 0
        tokens, total = [ids.decoder_start], 0.0
        while len(tokens) <= LENGTH and tokens[1:][-1:] != [ids.eos]:
            with torch.no_grad():
                logits = (
                    model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([tokens]))[0, -1] + outside
                )
            log_probs = logits.log_softmax(-1)
            tokens.append(int(logits.argmax()))
            total += float(log_probs[tokens[-1]])
        assert [*best.token_ids, *([ids.eos] if best.is_complete else [])] == tokens[1:]
        assert best.score == pytest.approx(total, abs=1e-4)
        assert set(best.token_ids) <= set(allowed.tolist())


@pytest.mark.parametrize(
    ("precision", "threads", "unit"),
    [
        # each pair of values
        ("fp32", 1, "self-attention"),
        ("int8", 2, "self-attention"),
        ("fp32", 2, "ssru"),
        ("int8", 1, "ssru"),
    ],
)
def test_results_do_not_depend_on_the_batch(tmp_path, rules, precision, threads, unit):
    """Rows without a list are in both steps: a recurrent unit takes in their token twice, which changes nothing."""
    bundle = make_bundle(tmp_path, rules, precision, decoder_unit=unit)
    sentences = Bag(bundle, sources(bundle, 70), seed=5).sentences(112)
    alone = check(bundle, sentences, threads=threads)
    assert 0 < sum(sentence.options.shortlist for sentence in sentences) < len(sentences)
    for sentence, hypotheses in zip(sentences, alone, strict=True):
        if sentence.options.shortlist:
            allowed = set(own_list(bundle, sentence.source_ids, sentence.allowed_ids).tolist())
            assert all(set(each.token_ids) <= allowed for each in hypotheses)


def test_a_shortlist_of_every_token_changes_no_translation(tmp_path, rules):
    """Every kind of search, over all tokens: as without a shortlist, but for rounding."""
    bundle = load_bundle(random_bundle(tmp_path / "plain", **MODEL))
    tokenizer, sizes = load_tokenizer(bundle), bundle.manifest.architecture
    everything = " ".join(tokenizer.target_pieces(range(sizes.target_vocab_size)))
    path = tmp_path / "all.vmap"
    path.write_text(f"\t{everything}\n{tokenizer.source_pieces([5])[0]}\t{everything}\n", encoding="utf-8")
    bundle = make_bundle(tmp_path, path, "fp32")
    with decoder(bundle) as engine:
        drawn = Bag(bundle, sources(bundle, 70), seed=5).sentences(140)
        # Rounding decides more of the long ones.
        sentences = [each for each in drawn if each.options.max_length < 48]
        with_list, without = (
            engine.together([each._replace(options=replace(each.options, shortlist=asked)) for each in sentences])
            for asked in (True, False)
        )
    for ours, theirs in zip(with_list, without, strict=True):
        assert [each.token_ids for each in ours] == [each.token_ids for each in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)
