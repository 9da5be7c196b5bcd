"""What a step's time is made of."""

import time
from types import SimpleNamespace

import pytest
import steps
from benchmarked_models import DEMO

from translane_server.bundle import load_bundle

needs_the_demo = pytest.mark.skipif(
    not (DEMO / "manifest.json").exists(), reason="the bundled model is not in this tree"
)


@needs_the_demo
@pytest.mark.parametrize("scores", [True, False])
def test_all_steps_are_counted_and_most_of_their_time_is_the_graphs(scores):
    asked = steps.sentences(3, 5, 5, 100, scores=scores)
    found = steps.measure(load_bundle(DEMO), asked, 3, 1, "cpu")
    assert (found.steps, found.rows) == (5, 3)
    assert 0 < found.runtime < found.step
    assert 0 < found.outside < 1


def test_on_cuda_what_counts_is_the_wait_for_the_device():
    def wait():
        time.sleep(0.01)

    sessions, stopwatch = SimpleNamespace(cuda=SimpleNamespace(synchronize=wait)), steps.Stopwatch()
    stopwatch.watch(sessions)
    assert stopwatch.seconds == 0
    sessions.cuda.synchronize()
    assert stopwatch.seconds >= 0.01
