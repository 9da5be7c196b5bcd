"""CTranslate2 as a decoder of token ids.

ctranslate2 is imported where it is used, so that its environment (`CT2_USE_MKL` and others) can be set before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.models.workload import Load


class CTranslate2Decoder:
    """CTranslate2 on a converted model, which decodes as many batches at once as it has `workers`. Close it."""

    def __init__(self, model: Path, *, workers: int, threads: int, compute_type: str, device: str = "cpu") -> None:
        self._translator = translator_of(
            model, workers=workers, threads=threads, compute_type=compute_type, device=device
        )
        self._source_tokens, target_tokens = vocabularies(Path(model))
        self._ids = {token: number for number, token in enumerate(target_tokens)}

    def prepare(self, load: Load) -> Any:
        """What `decode` takes: the load with its tokens as CTranslate2 has them."""
        options = {"beam_size": load.beam_size, "return_scores": False}
        names = self._source_tokens
        sources = [[names[number] for number in source] for source in load.sources]
        if load.lengths is None:
            together = {"max_batch_size": load.batch, "batch_type": "examples", "max_decoding_length": load.max_length}
            together["min_decoding_length"] = 0  # 1 by default: an empty translation is one, too
            return [(sources, options | together)]
        calls = []
        for first in range(0, len(sources), load.batch):
            length = load.lengths[first]
            exactly = {"min_decoding_length": length, "max_decoding_length": length}
            calls.append((sources[first : first + load.batch], options | exactly))
        return calls

    def decode(self, calls: Any) -> list[Any]:
        """Translate; all calls are under way at once, so that all workers have work."""
        waiting = [
            self._translator.translate_batch(sources, asynchronous=True, **options) for sources, options in calls
        ]
        return [answer.result() for answers in waiting for answer in answers]

    def token_ids(self, results: list[Any]) -> list[tuple[int, ...]]:
        """The best translations, in the order of the sources, without their ends."""
        return [tuple(self._ids[token] for token in result.hypotheses[0]) for result in results]

    def close(self) -> None:
        self._translator.unload_model()


def translator_of(model: Path, *, workers: int, threads: int, compute_type: str, device: str = "cpu") -> Any:
    """CTranslate2 on a converted model. A compute type is float32, int8 or float16; `threads` are those of a worker."""
    import ctranslate2

    return ctranslate2.Translator(
        str(model),
        device=device,
        inter_threads=workers,
        intra_threads=threads,
        compute_type=compute_type,
        max_queued_batches=-1,
    )


def vocabularies(model: Path) -> tuple[list[str], list[str]]:
    """The source and the target tokens of a converted model, by their ids."""
    shared = model / "shared_vocabulary.json"
    source, target = (
        json.loads((shared if shared.exists() else model / f"{side}_vocabulary.json").read_text(encoding="utf-8"))
        for side in ("source", "target")
    )
    return source, target
