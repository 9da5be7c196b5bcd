"""A greedy graph that chooses other tokens than the decoder's graph is no bundle's."""

import numpy as np
import pytest

from translane_export.checks.recording import record_decodes
from translane_export.errors import ExportError
from translane_export.model import TransformerConfig
from translane_server.runtime.backend import BEST_TOKEN, Candidates, StepNeeds

CONFIG = TransformerConfig(source_vocab_size=9, target_vocab_size=9)
SOURCES = [[5, 3], [6, 7, 3], [4, 3]]


class Backend:
    """Chooses the token after the one it is fed; asked for nothing else, from step `wrong_from` on, another one."""

    rows, source_capacity, target_capacity, has_attention, steps_at_once = 8, 4, 6, False, 1
    stops_between_steps = True

    def __init__(self, wrong_from):
        self.wrong_from = wrong_from
        self.asked = []

    def encode_ahead(self, sources):
        return len(sources)

    def enter(self, sources, rows, allowed=()):
        pass

    def move_rows(self, moves):
        pass

    def decode_step(self, token_ids, positions, needs=BEST_TOKEN, keep=None):
        self.asked.append(needs)
        ids = 4 + (token_ids[:, None] + np.arange(needs.num_candidates)) % 5
        if needs == StepNeeds(log_probs=False):
            return Candidates(np.where(positions[:, None] >= self.wrong_from, 8 - ids, ids))
        return Candidates(ids, np.zeros(ids.shape, np.float32), np.zeros((len(ids), 9), np.float32))

    def decode_ahead(self, token_ids, positions, steps, eos=None, stops=None, keep=None):
        raise AssertionError("every step is recorded")

    def align(self, row, first, rows):
        raise AssertionError("nothing is kept")

    def close(self):
        raise AssertionError("its owner closes it")


def test_a_greedy_step_that_chooses_the_same_is_recorded_as_without_it():
    recorded = [
        [decode.tokens for decode in record_decodes(Backend(99), CONFIG, SOURCES, greedy=greedy)]
        for greedy in (False, True)
    ]
    assert recorded[0] == recorded[1]


def test_a_greedy_step_that_chooses_another_token_is_one_sentence():
    with pytest.raises(
        ExportError, match=r"^the exported greedy step chose \d where the decoder's graph, .* chose \d$"
    ):
        record_decodes(Backend(3), CONFIG, SOURCES, greedy=True)


def test_a_bundle_without_a_greedy_graph_takes_each_step_once():
    backend = Backend(0)
    record_decodes(backend, CONFIG, SOURCES)
    assert StepNeeds(log_probs=False) not in backend.asked
