"""What a rehearsal of CUDA without a GPU has to know of the server: `cuda-rehearsal check --adapter` loads this file.

Steps are queued kernel by kernel here, so that the rehearsal sees the lengths that each attention kernel is given.
`captured.py` rehearses them as CUDA graphs, as the server runs them.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER_EXTRA = "server"
TESTS_EXTRA = "export"
TESTS_GROUP = "dev"

_CAPACITY = 128  # most source tokens and decoder steps of a row


@dataclass(frozen=True)
class Capture:
    """How to run the greedy graph on fixed memory, as a CUDA graph needs it.

    Attributes:
        host_inputs: those that stay in main memory, with their values; all others are zeros in device memory.
    """

    graph: Path  # the file
    sizes: dict[str, int]  # of the dimensions that the graph leaves open
    host_inputs: dict[str, list[int]]
    outputs: list[str]  # those to compute
    in_place: dict[str, str]  # inputs that outputs are written over


class Subject:
    """A bundle, and the server's backend on the CUDA device once `open` is called.

    Attributes:
        graphs: the bundle's ONNX files by name; `encode` runs "encoder", and a step "decoder".
        steps: the kinds of decoder step to take, by name.
    """

    def __init__(self, folder: Path, *, rows: int, candidates: int) -> None:
        from translane_server.bundle.bundle import load_bundle
        from translane_server.runtime.backend import StepNeeds

        self._rows = rows
        self._bundle = load_bundle(folder)
        manifest = self._bundle.manifest
        graphs = {name: getattr(manifest.graphs, name) for name in ("encoder", "decoder", "greedy", "alignment")}
        self.graphs = {name: self._bundle.path(graph.file) for name, graph in graphs.items() if graph}
        self.source_capacity = min(_CAPACITY, manifest.limits.source_tokens)  # most tokens of a source
        self.target_capacity = min(_CAPACITY, manifest.limits.target_tokens)  # most decoder steps
        self.steps = {
            "greedy": StepNeeds(log_probs=False),
            "scored": StepNeeds(),
            f"{candidates} candidates": StepNeeds(num_candidates=candidates),
            "logits": StepNeeds(logits=True),
        }
        if "alignment" in self.graphs:
            self.steps["attention"] = StepNeeds()  # which is kept, for an alignment
        self._backend: Any = None

    def open(self) -> None:
        """Load the graphs and reserve the rows."""
        from translane_server.runtime.cuda.backend import CudaBackend
        from translane_server.runtime.sessions import Sessions

        self._backend = CudaBackend(
            Sessions(self._bundle, device="cuda", threads=1),
            rows=self._rows,
            source_capacity=self.source_capacity,
            target_capacity=self.target_capacity,
            encode_tokens=self._rows * self.source_capacity,  # all sources in one run of the encoder
            capture=False,
        )
        tell_pieces(self._backend)

    def warm_up(self) -> None:
        """Do what the server does before it takes requests."""
        self._backend.warm_up()

    def encode(self, lengths: Sequence[int]) -> None:
        """Encode sources of these lengths into the first rows."""
        token = self._bundle.manifest.special_ids.eos
        self._backend.encode([[token] * length for length in lengths], 0)

    def step(self, name: str, positions: Sequence[int]) -> None:
        """Take a step of `steps` over the first rows, which are at these positions."""
        import numpy as np

        start = self._bundle.manifest.special_ids.decoder_start
        tokens = np.full(len(positions), start, np.int64)
        keep = 0 if name == "attention" else None
        self._backend.decode_step(tokens, np.array(positions, np.int32), self.steps[name], keep)

    def move_rows(self) -> str:
        """Copy rows as beams do, and say what was copied."""
        from translane_server.runtime.backend import RowMove

        last, length = self._rows - 1, min(20, self.source_capacity, self.target_capacity)
        self._backend.move_rows([RowMove(last, 0, length, length), RowMove(last, 1, length, 0)])
        return f"two rows of {length} positions, one with its source"

    def close(self) -> None:
        """Release everything."""
        self._backend.close()

    def capture(self) -> Capture:
        """A greedy step."""
        greedy = self._bundle.manifest.graphs.greedy
        assert greedy is not None
        in_place = {
            tensor.name: tensor.name.removeprefix("present_")
            for tensor in greedy.outputs
            if tensor.name.startswith("present_")
        }
        return Capture(
            graph=self.graphs["greedy"],
            sizes={
                "rows": self._rows,
                "source_capacity": self.source_capacity,
                "target_capacity": self.target_capacity,
            },
            host_inputs={},
            outputs=["candidate_ids", *in_place],
            in_place=in_place,
        )


def tell_pieces(backend: Any) -> None:
    """Tell the stand-ins what lies where in the memory that one copy takes to the device.

    The stand-ins know lengths by the addresses that copies go to; these ones lie in the middle of a copy.
    """
    learn = ctypes.CDLL("libcudart.so.13").rehearsal_learn
    learn.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    inputs, encoder, rows = backend._memory.inputs, backend._encoder, backend.rows
    pieces = {
        inputs: [
            (inputs.token_ids_address, 8 * rows, b"token ids"),
            (inputs.positions_address, 4 * rows, b"positions"),
            (inputs.source_lengths_address, 4 * rows, b"source lengths"),
            (inputs.counter_address, 4, b"counter"),
        ],
        encoder._memory: [
            (encoder._memory.address, 8 * len(encoder._ids), b"source ids"),
            (encoder._lengths_address, 4 * rows, b"source lengths"),
        ],
    }
    mirrored = type(encoder._memory)
    send = mirrored.to_device

    def send_and_tell(memory: Any) -> None:
        send(memory)
        for piece in pieces.get(memory, []):
            learn(*piece)

    mirrored.to_device = send_and_tell
