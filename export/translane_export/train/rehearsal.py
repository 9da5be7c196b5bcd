"""How long a validation will take, before the first one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from translane_export.checkpoint import save_tensors
from translane_export.model import Transformer
from translane_export.train.corpus import Corpus
from translane_export.train.evaluate import evaluate_model

_SENTENCES = 32
# Of the size of the weights: the weights to average, best/, latest/, and the state with two moments for each weight;
# and the average reads what was saved.
_SAVED = 8


def rehearse_validation(
    model: Transformer, corpus: Corpus, folder: Path, clock: Callable[[], float] = time.monotonic
) -> float:
    """Return about how long a validation of `model` and its saves into `folder` take [seconds].

    A few of the validation sentences are translated, and the weights are saved once, then deleted. An untrained model
    ends no sentence, so the estimate is rather too long than too short.
    """
    started = clock()
    pairs = corpus.valid.pairs
    some = sorted(pairs, key=lambda pair: len(pair.source))[:: -(-len(pairs) // _SENTENCES)]
    text = replace(corpus.valid, pairs=tuple(some))
    evaluate_model(model, corpus.source_vocabulary, corpus.target_vocabulary, text, corpus.settings.target_language)
    translated = clock()
    scratch = folder / "rehearsal.safetensors"
    save_tensors(scratch, model.state_dict())
    scratch.unlink()
    return (translated - started) * len(pairs) / len(some) + (clock() - translated) * _SAVED
