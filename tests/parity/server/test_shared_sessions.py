"""Several backends run one set of sessions at the same time: each computes what it computes alone, to the last bit."""

import sys
import threading

import numpy as np
import pytest

from helpers.bundles import SOURCES, random_bundle
from translane_server.backend import StepNeeds
from translane_server.bundle import load_bundle
from translane_server.ort import OrtBackend
from translane_server.sessions import Sessions
from translane_server.tokenizer import load_tokenizer

BACKENDS, STEPS, CAPACITY = 3, 40, 64
NEEDS = StepNeeds(num_candidates=4, logits=True, attention=True)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return load_bundle(random_bundle(tmp_path_factory.mktemp("shared") / "bundle", d_model=256, heads=8, ffn_size=1024))


def open_backends(sessions, number=BACKENDS):
    return [
        OrtBackend(sessions, rows=len(SOURCES), source_capacity=CAPACITY, target_capacity=CAPACITY)
        for _ in range(number)
    ]


def decode(backend, sources, start):
    """Everything that STEPS greedy steps of `sources` return, as bytes."""
    backend.encode(sources, 0)
    tokens, returned = np.full(len(sources), start, np.int64), []
    for step in range(STEPS):
        candidates = backend.decode_step(tokens, np.full(len(sources), step, np.int32), NEEDS)
        tokens = candidates.token_ids[:, 0].copy()
        parts = (candidates.token_ids, candidates.log_probs, candidates.logits, candidates.attention)
        returned.append(b"".join(part.tobytes() for part in parts))
    return returned


@pytest.mark.parametrize("threads", [1, 2])
def test_at_the_same_time_and_alone_give_the_same_bits(bundle, threads):
    sessions = Sessions(bundle, threads=threads)
    start = bundle.manifest.special_ids.decoder_start
    sources = load_tokenizer(bundle).encode(SOURCES)
    shares = [sources[number:] for number in range(BACKENDS)]  # each decodes other rows than its neighbours
    (alone,) = open_backends(sessions, 1)
    expected = [decode(alone, share, start) for share in shares]
    together, found = threading.Barrier(BACKENDS), [None] * BACKENDS

    def run(number, backend):
        together.wait()
        found[number] = decode(backend, shares[number], start)

    callers = [
        threading.Thread(target=run, args=(number, backend)) for number, backend in enumerate(open_backends(sessions))
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == expected


def test_a_run_holds_no_lock_of_pythons(bundle):
    """With Python's forced switches off, another thread gets to look only while a run has let go of the lock."""
    sessions = Sessions(bundle, threads=1)
    (backend,) = open_backends(sessions, 1)
    entered, seen = threading.Event(), []

    class Watched:
        running = False

        def __getattr__(self, name):
            return getattr(sessions.encoder, name)

        def run_with_iobinding(self, binding):
            self.running = True
            entered.set()
            sessions.encoder.run_with_iobinding(binding)
            self.running = False

    watched = backend._encoder = Watched()

    def look():
        while not any(seen):
            entered.wait()
            seen.append(watched.running)
            entered.clear()

    watcher = threading.Thread(target=look, daemon=True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        watcher.start()
        for _ in range(1000):  # a run may be over before the other thread has woken
            backend.encode([[5] * CAPACITY] * len(SOURCES), 0)
            if any(seen):
                break
    finally:
        sys.setswitchinterval(interval)
        entered.set()
    assert any(seen)
