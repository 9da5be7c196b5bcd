"""`translane serve` with a fake model; everything else is real. Run it as a script, with the command's own arguments.

FAKE_WARM_UP_SECONDS and FAKE_STEP_SECONDS in the environment slow the server down. FAKE_FAIL_AT_STEP makes each replica
fail. FAKE_MOST_LOSSES is how often a replica may be lost. FAKE_POISON is a character: a sentence that has it kills the
replica that encodes it. FAKE_IGNORES_ENDS lets the server ignore how its children end, as if its parent did so.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from unittest import mock

from fakes.backend import FakeBackend
from fakes.serving import FakeTokenizer, make_manifest
from translane.__main__ import main
from translane_server.bundle.bundle import Bundle
from translane_server.core.arrays import Int32Array, IntArray
from translane_server.models import folders, loader
from translane_server.runtime import ort, sessions
from translane_server.runtime.backend import BEST_TOKEN, Candidates, StepNeeds
from translane_server.workers import __main__ as replica
from translane_server.workers import launch, processes, worker

STEP_SECONDS = float(os.environ.get("FAKE_STEP_SECONDS", "0"))
WARM_UP_SECONDS = float(os.environ.get("FAKE_WARM_UP_SECONDS", "0"))
FAIL_AT_STEP = int(os.environ.get("FAKE_FAIL_AT_STEP", "-1"))
MOST_LOSSES = int(os.environ.get("FAKE_MOST_LOSSES", "5"))
POISON = os.environ.get("FAKE_POISON", "")
REPLICA = "--replica"  # what to run in place of the server


class SlowBackend(FakeBackend):
    def __init__(
        self, sessions: object, *, rows: int, source_capacity: int, target_capacity: int, **_others: object
    ) -> None:
        super().__init__(rows, source_capacity, target_capacity)
        self.fail_at_step = FAIL_AT_STEP
        self.poison = FakeTokenizer().encode([POISON])[0][:1]

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        if self.poison and any(self.poison[0] in source for source in sources):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_ahead(sources)

    def warm_up(self) -> None:
        time.sleep(WARM_UP_SECONDS)

    def decode_step(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN, keep: int | None = None
    ) -> Candidates:
        time.sleep(STEP_SECONDS)
        return super().decode_step(token_ids, positions, needs, keep)


def run_replica() -> int:
    with (
        mock.patch.object(sessions, "Sessions", lambda bundle, **_options: SimpleNamespace(bundle=bundle, cuda=None)),
        mock.patch.object(Bundle, "unchanged", return_value=contextlib.nullcontext()),
        mock.patch.object(ort, "OrtBackend", SlowBackend),
    ):
        return replica.main()


def run_server() -> int:
    environ = {name: value for name, value in os.environ.items() if name.startswith(("TRANSLANE_", "OTEL_", "NOTIFY_"))}
    worker._MOST_LOSSES = MOST_LOSSES
    if os.environ.get("FAKE_IGNORES_ENDS"):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with (
        mock.patch.object(folders, "manifest_names", return_value=["fake"]),
        mock.patch.multiple(
            loader,
            manifest_names=lambda version: ["fake"],
            choose_bundle=lambda folder, requested: (Bundle(folder, make_manifest()), "cpu"),
            load_tokenizer=lambda bundle: FakeTokenizer(),
        ),
        mock.patch.object(Bundle, "unchanged", return_value=contextlib.nullcontext()),
        mock.patch.object(launch, "process_ahead", contextlib.nullcontext),
        mock.patch.object(
            processes, "process_hosts", partial(processes.process_hosts, command=[sys.executable, __file__, REPLICA])
        ),
    ):
        return main(["serve", *sys.argv[1:]], environ)


if __name__ == "__main__":
    sys.exit(run_replica() if REPLICA in sys.argv else run_server())
