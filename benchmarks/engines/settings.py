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
    """One way to run an engine.

    Attributes:
        engine: its name.
        name: of the setting.
        workers: how many batches decode at once.
        threads: of each worker.
        decoder: "module.Class" of the decoder.
        options: arguments of the decoder's constructor.
        environment: variables of the decoder's process.
    """

    engine: str
    name: str
    workers: int
    threads: int
    decoder: str
    options: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)


def splits(cores: int) -> list[tuple[int, int]]:
    """Workers × threads that use all cores, most workers first."""
    return [(workers, cores // workers) for workers in range(cores, 0, -1) if cores % workers == 0]


def settings_of_translane(cores: int) -> list[Setting]:
    return [
        Setting(
            "translane",
            f"{replicas} × {threads}",
            replicas,
            threads,
            TRANSLANE,
            {"replicas": replicas, "threads": threads},
        )
        for replicas, threads in splits(cores)
    ]


def settings_of_ctranslate2(cores: int) -> list[Setting]:
    return [
        Setting(
            "ctranslate2",
            f"{workers} × {threads} {library}",
            workers,
            threads,
            CTRANSLATE2,
            {"workers": workers, "threads": threads},
            environment,
        )
        for library, environment in LIBRARIES.items()
        for workers, threads in splits(cores)
    ]


def settings_of_hugging_face(cores: int) -> list[Setting]:
    return [Setting("hugging_face", f"1 × {cores}", 1, cores, HUGGING_FACE, {"threads": cores})]


def settings_on_cuda(cores: int) -> dict[str, list[Setting]]:
    """The settings of all engines on a GPU: one batch at a time, or for CTranslate2 two."""
    ours = [setting for setting in settings_of_translane(cores) if setting.workers == 1]
    return {
        "translane": ours,
        "ctranslate2": [
            Setting("ctranslate2", f"{workers} × 1", workers, 1, CTRANSLATE2, {"workers": workers, "threads": 1})
            for workers in (1, 2)
        ],
        "hugging_face": settings_of_hugging_face(cores),
    }
