"""The ways to run each engine as a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The environment that makes CTranslate2 multiply matrices with a library, where its build has both. MKL comes second:
# on processors that are not Intel's, MKL can take forty times as long, and the first trial is never given up.
LIBRARIES = {
    "oneDNN": {"CT2_USE_MKL": "0"},
    "MKL": {"CT2_USE_MKL": "1"},
    "MKL packed": {"CT2_USE_MKL": "1", "CT2_PACKED_GEMM": "1"},
}

# Classes of decoders, as `DecoderProcess` takes them.
TRANSLANE = "benchmarks.engines.translane_decoder.TranslaneDecoder"
CTRANSLATE2 = "benchmarks.engines.ctranslate2_decoder.CTranslate2Decoder"
HUGGING_FACE = "benchmarks.engines.hugging_face_decoder.HuggingFaceDecoder"


@dataclass(frozen=True, eq=False)
class Setting:
    """One way to run an engine."""

    engine: str
    name: str
    decoder: str  # "module.Class"
    options: Mapping[str, Any]  # of the decoder's constructor
    environment: Mapping[str, str] = field(default_factory=dict)  # of the decoder's process


def splits(cores: int) -> list[tuple[int, int]]:
    """Workers × threads that use all cores, most workers first."""
    return [(workers, cores // workers) for workers in range(cores, 0, -1) if cores % workers == 0]


def settings_of(cores: int, device: str) -> dict[str, list[Setting]]:
    """The settings of all engines: all that use all cores, or on a GPU one batch at a time, and for CTranslate2 two."""
    split = splits(cores) if device == "cpu" else [(1, cores)]
    of_ctranslate2 = split if device == "cpu" else [(1, 1), (2, 1)]
    libraries = LIBRARIES if device == "cpu" else {"": {}}
    return {
        "translane": [
            Setting("translane", f"{replicas} × {threads}", TRANSLANE, {"replicas": replicas, "threads": threads})
            for replicas, threads in split
        ],
        "ctranslate2": [
            Setting(
                "ctranslate2",
                f"{workers} × {threads} {library}".rstrip(),
                CTRANSLATE2,
                {"workers": workers, "threads": threads},
                environment,
            )
            for library, environment in libraries.items()
            for workers, threads in of_ctranslate2
        ],
        "hugging_face": [Setting("hugging_face", f"1 × {cores}", HUGGING_FACE, {"threads": cores})],
    }
