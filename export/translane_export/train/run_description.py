"""What a run says about itself: in its checkpoints, and in the state that it resumes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from translane_export.train.corpus import Corpus
from translane_export.train.evaluate import Evaluation
from translane_export.train.settings import TrainSettings
from translane_export.train.state import FREE_ON_RESUME, RunState

# Settings that the weights do not depend on.
_ELSEWHERE = {
    *("output", "resume", "log_every", "tensorboard"),
    *("evaluate", "test", "beam_size", "length_penalty", "output_translations"),
}


@dataclass(frozen=True)
class RunDescription:
    """Describes one run. `initialised_from` names the checkpoint whose weights it starts from, if there is one."""

    settings: TrainSettings
    corpus: Corpus
    initialised_from: str = ""

    def identity(self) -> dict[str, Any]:
        """Return what a run that resumes this one must share with it."""
        values = {name: value for name, value in self._portable_settings().items() if name not in FREE_ON_RESUME}
        return {**values, "training data": self.corpus.train.digest, "validation data": self.corpus.valid.digest}

    def metadata(self, state: RunState, evaluation: Evaluation) -> dict[str, Any]:
        """Return the "training" part of a checkpoint's config.json."""
        settings = self.settings
        return {
            **({"initialised_from": self.initialised_from} if self.initialised_from else {}),
            "steps": state.step,
            "epochs": state.epoch,
            "minutes": round(state.seconds / 60, 1),
            "averaged_steps": state.checkpoints[-settings.average :],
            "seed": settings.seed,
            "valid_bleu": round(evaluation.bleu, 2),
            "valid_chrf": round(evaluation.chrf, 2),
            "bleu_signature": evaluation.bleu_signature,
            "chrf_signature": evaluation.chrf_signature,
            "data_licence": settings.data_licence,
            "training_pairs": len(self.corpus.train.pairs),
            "settings": self._portable_settings(),
        }

    def _portable_settings(self) -> dict[str, Any]:
        """Settings as JSON values; of paths the file name alone, as they differ from machine to machine."""
        values = self.settings.model_dump(exclude=_ELSEWHERE)
        return {name: value.name if isinstance(value, Path) else value for name, value in values.items()}
