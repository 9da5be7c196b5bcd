"""Scores of a model on parallel text, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from translane_export.core.checkpoint import load_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.torch_model import build_model
from translane_export.model import Transformer
from translane_export.model.greedy import greedy_decode
from translane_export.train.data import ParallelText
from translane_export.train.vocabulary import Vocabulary

# Languages whose spaces, where there are any, do not part words as sacrebleu's default expects.
_TOKENIZERS = {"zh": "zh", **dict.fromkeys(("ja", "ko", "th", "lo", "km", "my"), "char")}


@dataclass(frozen=True)
class Evaluation:
    """Corpus scores (0 to 100) and the sacrebleu signatures that say how they were computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    hypotheses: tuple[str, ...]

    def __str__(self) -> str:
        return f"BLEU {self.bleu:.2f}  {self.bleu_signature}\nchrF {self.chrf:.2f}  {self.chrf_signature}"


def score(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> Evaluation:
    """Score translations against one reference each; BLEU's tokens follow from the language."""
    bleu, chrf = BLEU(tokenize=bleu_tokenizer(target_language)), CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)]).score
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)]).score
    return Evaluation(
        bleu=bleu_score,
        chrf=chrf_score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        hypotheses=tuple(hypotheses),
    )


def bleu_tokenizer(language: str) -> str:
    """Return the name of sacrebleu's tokenizer for texts in a language."""
    return _TOKENIZERS.get(language.replace("_", "-").partition("-")[0].lower(), "13a")


def evaluate_model(
    model: Transformer, source: Vocabulary, target: Vocabulary, text: ParallelText, target_language: str
) -> Evaluation:
    """Translate the source side greedily and score it; sources beyond the model's positions are cut."""
    room = model.config.max_positions - 1
    sources, references = text.sides()
    ids = [sentence[:room] for sentence in source.encode(sources)]
    return score(target.decode(greedy_decode(model, ids)), references, target_language)


def evaluate_checkpoint(directory: Path, text: ParallelText) -> Evaluation:
    """Score the checkpoint folder in fp32, as `evaluate_model` does. Raises ExportError when it cannot be read."""
    checkpoint = load_checkpoint(directory)
    checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)  # refuses ids that the model does not have
    source, target = (Vocabulary(path) for path in checkpoint.tokenizer.sentencepiece_models())
    try:
        model = build_model(checkpoint)
    except ExportError as error:
        raise ExportError(f"{directory}: {error}") from None
    return evaluate_model(model, source, target, text, checkpoint.languages.target[0])
