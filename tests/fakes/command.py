"""`translane-server` with everything real but the model: run as a script, with the command's own arguments.

FAKE_WARM_UP_SECONDS and FAKE_STEP_SECONDS in the environment slow it down; FAKE_FAIL_AT_STEP breaks it.
"""

import os
import sys
import time

from fakes.backend import FakeBackend
from fakes.serving import FakeTokenizer, make_manifest
from translane_server import command
from translane_server.bundle import Bundle

STEP_SECONDS = float(os.environ.get("FAKE_STEP_SECONDS", "0"))
WARM_UP_SECONDS = float(os.environ.get("FAKE_WARM_UP_SECONDS", "0"))
FAIL_AT_STEP = int(os.environ.get("FAKE_FAIL_AT_STEP", "-1"))


class SlowBackend(FakeBackend):
    def __init__(self, sessions, *, rows, source_capacity, target_capacity, **_others):
        super().__init__(rows, source_capacity, target_capacity)
        self.fail_at_step = FAIL_AT_STEP

    def warm_up(self):
        time.sleep(WARM_UP_SECONDS)

    def decode_step(self, token_ids, positions, *needs):
        time.sleep(STEP_SECONDS)
        return super().decode_step(token_ids, positions, *needs)


if __name__ == "__main__":
    command.load_bundle = lambda folder: Bundle(folder, make_manifest())
    command.load_tokenizer = lambda bundle: FakeTokenizer()
    command.choose_device = lambda requested, precision: "cpu"
    command.Sessions = lambda bundle, **_options: bundle
    command.OrtBackend = SlowBackend
    environ = {name: value for name, value in os.environ.items() if name.startswith("TRANSLANE_")}
    sys.exit(command.run(sys.argv[1:], environ))
