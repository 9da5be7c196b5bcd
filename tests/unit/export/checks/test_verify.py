"""The parity check notices what it is there to notice."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import SMALL_SIZES, random_model
from translane_export.checks.alignment_layer import recorded_attention
from translane_export.checks.recording import record_decodes
from translane_export.checks.verify import compare, passes, verification_sources
from translane_export.core.errors import ExportError
from translane_export.graphs.numerics import choose_numerics
from translane_export.model import Transformer, TransformerConfig
from translane_server.bundle.manifest import Alignment
from translane_server.runtime.backend import BEST_TOKEN, Candidates, StepNeeds

FP32 = choose_numerics("fp32", None)
ALONE = StepNeeds(log_probs=False)
BOTH_HEADS = Alignment(layer=0, heads=(0, 1))


def check_parity(backend, model, sources, *, alignment=None):
    decodes = record_decodes(backend, model.config, sources, attention=alignment is not None)
    return compare(decodes, model, FP32, alignment)


@dataclass
class EagerBackend:
    """PyTorch's own decode, row by row, with what a test wants wrong in it."""

    model: Any
    noise: float = 0.0
    attention: Callable[..., Any] = lambda weights: weights
    wrong_token_at: int | None = None
    candidates: Callable[..., Any] = lambda ids, log_probs: (ids, log_probs)
    greedy_wrong_from: int = 99

    rows = 8
    source_capacity = 12
    target_capacity = 10
    has_attention = True
    steps_at_once = 1
    stops_between_steps = True

    def __post_init__(self):
        self.lengths, self.memory, self.fed, self.kept = {}, {}, {}, {}
        self.encoded, self.encoded_together, self.positions, self.asked = [], [], [], []

    def encode_ahead(self, sources):
        self.encoded_together.append(len(sources))
        self.encoded = sources
        return len(sources)

    @torch.inference_mode()
    def enter(self, sources, rows, allowed=()):
        for number, row in zip(sources, rows, strict=True):
            source = self.encoded[number]
            self.lengths[row] = torch.tensor([len(source)])
            self.memory[row] = self.model.encode(torch.tensor([source]), self.lengths[row])
            self.fed[row] = []

    def move_rows(self, moves):
        for move in moves:
            self.lengths[move.target] = self.lengths[move.source]
            self.memory[move.target] = self.memory[move.source]
            self.fed[move.target] = list(self.fed[move.source])

    @torch.inference_mode()
    def decode_step(self, token_ids, positions, needs=BEST_TOKEN, keep=None):
        self.positions.append(set(positions.tolist()))
        self.asked.append(needs)
        rows, attention = [], np.zeros((len(token_ids), self.source_capacity), np.float32)
        for row, (token, position) in enumerate(zip(token_ids.tolist(), positions.tolist(), strict=True)):
            del self.fed[row][position:]
            self.fed[row].append(token)
            with recorded_attention(self.model) as weights:
                output = self.model.decode(torch.tensor([self.fed[row]]), self.memory[row], self.lengths[row])
            rows.append(output[0, -1])
            attention[row, : int(self.lengths[row])] = weights[0][0, :, -1].mean(0)
        logits = torch.stack(rows).numpy() + np.float32(self.noise)
        log_probs = torch.log_softmax(torch.from_numpy(logits), dim=1).numpy()
        for values in (logits, log_probs):
            values[:, list(self.model.config.suppressed_ids)] = -np.inf
        order = np.argsort(-logits, axis=1)
        if needs == ALONE:
            return Candidates(np.where(positions[:, None] >= self.greedy_wrong_from, order[:, 1:2], order[:, :1]))
        first = 1 if self.wrong_token_at in positions else 0
        chosen = order[:, first : first + needs.num_candidates]
        ids, log_probs = self.candidates(chosen, np.take_along_axis(log_probs, chosen, axis=1))
        self.kept[keep] = self.attention(attention)
        return Candidates(ids, log_probs, logits)

    def align(self, row, first, rows):
        return np.stack([self.kept[number][row] for number, row in enumerate(rows, start=first)])

    def decode_ahead(self, token_ids, positions, steps, eos=None, stops=None, keep=None):
        raise AssertionError("every step is compared")

    def close(self):
        raise AssertionError("its owner closes it")


@pytest.fixture(scope="module")
def model():
    model = random_model(TransformerConfig(**SMALL_SIZES | {"decoder_layers": 1, "max_positions": 16}))
    with torch.no_grad():
        model.output_projection.bias[model.config.eos_id] -= 1  # some sentences end, some do not
    return model


@pytest.fixture(scope="module")
def sources(model):
    return verification_sources([[5, 6, 3], [], [4] * 40], model.config, 12)


def test_the_same_model_passes_at_every_position(model, sources):
    backend = EagerBackend(model)
    parity = check_parity(backend, model, sources, alignment=BOTH_HEADS)
    assert passes(parity)
    assert parity.sentences == len(sources)
    assert parity.tokens > len(sources)
    assert parity.max_attention_difference < 1e-5
    assert check_parity(EagerBackend(model), model, sources).max_attention_difference is None
    assert max(backend.encoded_together) > 1
    assert any(len(positions) > 2 for positions in backend.positions)  # rows at different places in their sentences
    assert set(range(backend.target_capacity)) == set.union(*backend.positions)
    assert backend.positions[-1] == {backend.target_capacity - 1}
    assert backend.source_capacity in {len(source) for source in sources}


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_position_table_that_is_wrong_at_its_end_fails(model, sources, part):
    broken = copy.deepcopy(model)
    getattr(broken, part).embedding.positions.table[9:] += 0.5
    assert not passes(check_parity(EagerBackend(broken), model, sources))


WRONG = {
    "constant log-probs": {"candidates": lambda ids, log_probs: (ids, np.full_like(log_probs, -1.0))},
    "log-probs that are no numbers": {"candidates": lambda ids, log_probs: (ids, log_probs * np.nan)},
    "candidates all equal": {"candidates": lambda ids, log_probs: (ids[:, [0] * 4], log_probs[:, [0] * 4])},
    "out of order": {"candidates": lambda ids, log_probs: (ids[:, [0, 2, 1, 3]], log_probs[:, [0, 2, 1, 3]])},
    "no id": {"candidates": lambda ids, log_probs: (ids + 1000 * (np.arange(4) == 3), log_probs)},
    "logits that are no numbers": {"noise": np.nan},
    "attention with noise": {"attention": lambda weights: weights + np.float32(1e-3)},
    "attention that is no number": {"attention": lambda weights: weights * np.nan},
    "attention backwards": {"attention": lambda weights: weights[:, ::-1]},
    "attention beyond the source": {"attention": lambda weights: np.maximum(weights, 1e-3)},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_wrong_fails(model, sources, wrong):
    assert not passes(check_parity(EagerBackend(model, **wrong), model, sources, alignment=BOTH_HEADS))


def test_an_id_outside_the_vocabulary_is_one_sentence(model, sources):
    backend = EagerBackend(model, candidates=lambda ids, log_probs: (ids + 1000, log_probs))
    with pytest.raises(ExportError, match="which is no id of its target vocabulary"):
        check_parity(backend, model, sources)


@pytest.mark.parametrize(("factor", "noise", "passed"), [(1, 5e-4, False), (200, 5e-4, True), (200, 0.1, False)])
def test_a_difference_is_what_rounding_does_not_explain(model, sources, factor, noise, passed):
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.output_projection.weight *= factor
    parity = check_parity(EagerBackend(model, noise=noise), model, sources)
    assert (parity.max_logit_difference <= parity.tolerance) is passes(parity) is passed
    if factor == 1:
        assert (parity.max_logit_difference, parity.token_mismatches) == (pytest.approx(noise, rel=0.1), 0)


def test_a_model_that_is_all_rounding_cannot_be_verified(model, sources):
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.output_projection.weight.copy_(model.output_projection.weight[:1].expand(30, -1) * 1e6)
        model.output_projection.bias.zero_()
    with pytest.raises(ExportError, match="cannot be verified: rounding in float32 alone changes the logits of"):
        check_parity(EagerBackend(model, noise=1.0), model, sources)


def suppressing(model, *ids, **config):
    copied = Transformer(model.config.changed(suppressed_ids=ids, **config)).eval()
    copied.load_state_dict(model.state_dict())
    return copied


def test_the_decoder_is_fed_what_it_starts_with(model, sources):
    reference = suppressing(model, decoder_start_id=5)
    backend = EagerBackend(reference)
    check_parity(backend, reference, sources)
    assert {fed[0] for fed in backend.fed.values()} == {5}


@pytest.mark.parametrize(
    ("suppressed", "passed"), [([0, 7, 9], True), ([], False), ([0, 7], False), ([0, 7, 9, 11], False)]
)
def test_suppressed_ids_are_minus_infinity_in_both(model, sources, suppressed, passed):
    reference = suppressing(model, 0, 7, 9)
    parity = check_parity(EagerBackend(suppressing(model, *suppressed)), reference, sources)
    assert passes(parity) is passed
    assert parity.max_logit_difference < 1e-5 if passed else parity.max_logit_difference == np.inf


def test_other_heads_fail(model, sources):
    first = Alignment(layer=0, heads=(0,))
    assert not passes(check_parity(EagerBackend(model), model, sources, alignment=first))


def test_another_token_fails_even_where_logits_agree(model, sources):
    parity = check_parity(EagerBackend(model, wrong_token_at=3), model, sources)
    assert parity.max_logit_difference < 1e-4
    assert parity.token_mismatches > 0
    assert not passes(parity)


def test_sources_are_the_samples_that_fit_and_random_ones_of_many_lengths(model, sources):
    assert [5, 6, 3] in sources
    assert all(1 <= len(source) <= 12 for source in sources)
    assert len({len(source) for source in sources}) > 6
    assert all(source[-1] == 3 and 0 not in source and 2 not in source for source in sources)
    assert sources == verification_sources([[5, 6, 3], [], [4] * 40], model.config, 12)


def tokens_of(backend, sources, **options):
    return [decode.tokens for decode in record_decodes(backend, backend.model.config, sources, **options)]


def test_a_greedy_step_that_chooses_the_same_is_recorded_as_without_it(model, sources):
    backend = EagerBackend(model)
    without = tokens_of(backend, sources)
    assert ALONE not in backend.asked
    assert tokens_of(backend, sources, greedy=True) == without
    assert ALONE in backend.asked


def test_a_greedy_step_that_chooses_another_token_is_one_sentence(model, sources):
    sentence = r"^the exported greedy step chose \d+ where the decoder's graph, .* chose \d+$"
    with pytest.raises(ExportError, match=sentence):
        tokens_of(EagerBackend(model, greedy_wrong_from=3), sources, greedy=True)
