"""Hugging Face models with random weights, as folders to export, and their `generate` to compare with.

The weights are drawn so that decoding has real choices: tokens differ from step to step, and sentences end at many
lengths.
"""

import dataclasses
import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from transformers import GenerationConfig

from helpers import foreign_folders
from helpers.decomposition import no_decomposition
from helpers.driver import BundleDecoder
from helpers.store import stored
from helpers.vocabularies import vocabulary
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.settings import ExportSettings
from translane_export.core.tokenizer_files import TokenizerFiles
from translane_export.sources.foreign_tokenizers import ForeignTokenizer
from translane_export.sources.huggingface import model_type
from translane_export.sources.readers import ARCHITECTURES, hugging_face_reader
from translane_server.bundle.bundle import Bundle, load_bundle
from translane_server.bundle.manifest import Languages, SentencePieceTokenizerEntry
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Hypothesis, Sentence

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

MAX_LENGTH = 24
TIE = 2e-5  # scores that are computed in another order differ by up to this; of closer choices, both are correct
SCORE_TOLERANCE = 1e-4  # relative, and absolute below 1
DEAD = -1e8  # Hugging Face keeps beams that do not exist at -1e9
VOCABULARY = 120


@dataclass(frozen=True)
class Model:
    """A model to draw: its classes and sizes, and the generation settings of its folder."""

    kind: str
    config: dict[str, Any]
    generation: dict[str, Any] = field(default_factory=dict)
    forced_bos: int | None = None
    ends: float = 1.5  # how much the end of the sentence is favoured [logits]
    spread: float = 0.25  # standard deviation added to matrices

    @property
    def config_class(self) -> Any:
        return getattr(transformers, f"{self.kind}Config")

    @property
    def model_class(self) -> Any:
        return getattr(transformers, f"{self.kind}{'MTModel' if self.kind == 'Marian' else 'ForConditionalGeneration'}")


_BART = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "dropout": 0.0,
}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 48,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
}
_PAD = VOCABULARY - 1
_MARIAN = {
    **_BART,
    "activation_function": "swish",
    "scale_embedding": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": _PAD,
    "decoder_start_token_id": _PAD,
}
_NO_PAD = {"suppress_tokens": [1]}

MODELS = {
    "Marian": Model("Marian", _MARIAN, {"bad_words_ids": [[_PAD]]}, ends=3.0),
    "Marian, two vocabularies": Model(
        "Marian",
        {
            **_MARIAN,
            "activation_function": "relu",
            "decoder_vocab_size": VOCABULARY + 30,
            "share_encoder_decoder_embeddings": False,
        },
        {"bad_words_ids": [[_PAD]]},
        ends=4.0,
    ),
    "BART": Model("Bart", _BART, _NO_PAD, forced_bos=0),
    "mBART-50": Model(
        "MBart",
        {**_BART, "decoder_start_token_id": 2, "scale_embedding": True},
        _NO_PAD,
        forced_bos=VOCABULARY - 3,
        ends=4.0,
    ),
    "M2M100, NLLB-200": Model("M2M100", _BART, _NO_PAD, forced_bos=VOCABULARY - 5, ends=4.0),
    "T5": Model("T5", {**_T5, "decoder_start_token_id": 0}, ends=2.0),
    "FLAN-T5, T5 1.1": Model(
        "T5",
        {**_T5, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        spread=0.1,
    ),
    "T5, gated-silu": Model("T5", {**_T5, "decoder_start_token_id": 0, "feed_forward_proj": "gated-silu"}, spread=0.1),
    "mT5": Model("MT5", {**_T5, "tie_word_embeddings": False}, spread=0.1),
}


def draw(model: Model, seed: int = 0) -> Any:
    """Return a model with random weights that sometimes ends its sentences."""
    torch.manual_seed(seed)
    drawn = model.model_class(model.config_class(**model.config)).eval()
    with torch.no_grad():
        for name, tensor in {**dict(drawn.named_parameters()), **dict(drawn.named_buffers())}.items():
            if "embed_positions" in name and model.kind in ("Marian", "M2M100"):
                continue  # fixed
            scale = model.spread if tensor.ndim > 1 and min(tensor.shape) > 1 else 0.1
            tensor.add_(torch.randn_like(tensor) * scale)
        if model.kind in ("T5", "MT5") and not model.config.get("tie_word_embeddings", True):
            drawn.lm_head.weight = torch.nn.Parameter(torch.randn_like(drawn.shared.weight) * 0.3)
        _favour_the_end(drawn, model.ends)
    drawn.generation_config = GenerationConfig(
        pad_token_id=drawn.config.pad_token_id,
        eos_token_id=drawn.config.eos_token_id,
        bos_token_id=getattr(drawn.config, "bos_token_id", None),
        decoder_start_token_id=drawn.config.decoder_start_token_id,
        forced_bos_token_id=model.forced_bos,
        **model.generation,
    )
    return drawn


def _favour_the_end(model: Any, amount: float) -> None:
    """Give the end of the sentence a higher logit, by a bias or by the bias of the last norm."""
    end = model.config.eos_token_id
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias[0, end] += amount
        return
    weight = model.get_output_embeddings().weight
    norm = getattr(model.get_decoder(), "layer_norm", None)
    if norm is not None:
        norm.bias += weight[end] * (amount / weight[end].square().sum())
    else:
        weight[end] *= amount  # RMSNorm has no bias, so the end's logits get larger in both directions


def sources(model: Any, count: int, seed: int = 0, longest: int = 20) -> list[list[int]]:
    """Return random sources that end as a tokenizer would end them."""
    pick = random.Random(seed)
    config = model.config
    special = {config.pad_token_id, config.eos_token_id}
    ids = [number for number in range(config.vocab_size) if number not in special]
    return [[*pick.choices(ids, k=pick.randint(1, longest - 1)), config.eos_token_id] for _ in range(count)]


@dataclass(frozen=True)
class Expected:
    """A hypothesis of `generate`: its forced and generated tokens without the end of the sentence."""

    token_ids: tuple[int, ...]
    is_complete: bool  # the end-of-sentence token ended it
    score: float | None  # `generate` has none without beams


@dataclass(frozen=True)
class Generated:
    """What `generate` returns for a sentence.

    `margin` is the smallest distance between two neighbouring candidates that `generate` ranked, in any step. If the
    margin is as small as rounding errors, another order is correct, too.
    """

    hypotheses: tuple[Expected, ...]
    margin: float


def generate(
    model: Any, batch: Sequence[Sequence[int]], beam_size: int, max_length: int = MAX_LENGTH
) -> list[Generated]:
    """Return the translation of each source by `generate` with these arguments."""
    return run_generate(model, batch, beam_size, num_beams=beam_size, do_sample=False, max_new_tokens=max_length)


def run_generate(model: Any, batch: Sequence[Sequence[int]], beam_size: int, **arguments: Any) -> list[Generated]:
    """Return the translation of each source by `generate` with any arguments, which searches with `beam_size` beams."""
    config = model.config
    lengths = torch.tensor([len(source) for source in batch])
    padded = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(source) for source in batch], batch_first=True, padding_value=config.pad_token_id
    )
    mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()
    output, gaps = _generated_with_gaps(model, beam_size, input_ids=padded, attention_mask=mask, **arguments)
    hypotheses = []
    for index, sequence in enumerate(output.sequences[:, 1:].tolist()):
        ended = config.eos_token_id in sequence
        tokens = sequence[: sequence.index(config.eos_token_id)] if ended else sequence
        score = float(output.sequences_scores[index]) if beam_size > 1 else None
        hypotheses.append(Expected(tuple(tokens), ended, score))
    count = len(hypotheses) // len(batch)
    forced = output.sequences.shape[1] - 1 - len(output.scores)
    results = []
    for row in range(len(batch)):
        found = tuple(hypotheses[row * count : (row + 1) * count])
        steps = None if beam_size > 1 else len(found[0].token_ids) + found[0].is_complete - forced
        results.append(Generated(found, _least(gaps[:steps, row])))
    return results


def _generated_with_gaps(model: Any, beam_size: int, **arguments: Any) -> tuple[Any, torch.Tensor]:
    """Return what `generate` returns, and how near the candidates were that it ranked.

    That is the smallest distance between neighbours in each step of each sentence: [T, B].
    """
    steps: list[torch.Tensor] = []
    ranked = model._get_top_k_continuations

    def recorded(accumulated_log_probs: torch.Tensor, *arguments: Any, beams_to_keep: int, **keywords: Any) -> Any:
        best = torch.topk(accumulated_log_probs, min(beams_to_keep + 1, accumulated_log_probs.shape[1])).values
        steps.append(torch.where(best[:, 1:] > DEAD, best[:, :-1] - best[:, 1:], torch.inf).amin(1))
        return ranked(accumulated_log_probs, *arguments, beams_to_keep=beams_to_keep, **keywords)

    with torch.inference_mode(), mock.patch.object(model, "_get_top_k_continuations", recorded):
        output = model.generate(**arguments, return_dict_in_generate=True, output_scores=True)
    if beam_size > 1:
        return output, torch.stack(steps)
    best = torch.stack([step.topk(2).values for step in output.scores])  # [T, B, 2]
    return output, best[..., 0] - best[..., 1]


def _least(gaps: torch.Tensor) -> float:
    """Return the smallest of the distances; infinity where there is none."""
    finite = gaps[torch.isfinite(gaps)]
    return float(finite.min()) if len(finite) else float("inf")


@dataclass
class Comparison:
    """How much was compared, and the result."""

    sentences: int = 0
    tokens: int = 0  # of the best hypotheses
    ended: int = 0  # of the best hypotheses
    ties: int = 0
    mismatches: list[str] = field(default_factory=list)
    score_difference: float = 0.0  # the largest, relative to scores above 1

    def add(
        self,
        said: object,
        found: Sequence[Hypothesis],
        wanted: Generated,
        are_ties: Callable[[], bool] = lambda: False,
    ) -> None:
        """Compare the hypotheses of the sentence that `said` tells; only beams have scores to compare.

        Args:
            said: names the sentence where it differs.
            found: the server's hypotheses.
            wanted: those of `generate`.
            are_ties: whether other hypotheses than those of `generate` are as good, whatever its margin is.
        """
        self.sentences += 1
        self.tokens += len(wanted.hypotheses[0].token_ids)
        self.ended += wanted.hypotheses[0].is_complete
        if [_outcome(ours) for ours in found] != [_outcome(theirs) for theirs in wanted.hypotheses]:
            if wanted.margin < TIE or are_ties():
                self.ties += 1
                return
            problem = "other tokens"
        else:
            difference = max(_score_difference(*pair) for pair in zip(found, wanted.hypotheses, strict=True))
            self.score_difference = max(self.score_difference, difference)
            if difference <= SCORE_TOLERANCE:
                return
            problem = f"scores differ by {difference:.2g}"
        lines = [f"{problem}: {said}", "  server:", *(f"    {ours}" for ours in found)]
        lines += [f"  generate (margin {wanted.margin:.2g}):", *(f"    {theirs}" for theirs in wanted.hypotheses)]
        self.mismatches.append("\n".join(lines))


def _outcome(hypothesis: Hypothesis | Expected) -> tuple[object, object]:
    return tuple(hypothesis.token_ids), hypothesis.is_complete


def _score_difference(ours: Hypothesis, theirs: Expected) -> float:
    if theirs.score is None:
        return 0.0
    assert ours.score is not None
    return abs(ours.score - theirs.score) / max(1.0, abs(theirs.score))


def compare(
    bundle: Bundle, model: Any, batch: Sequence[Sequence[int]], beam_size: int, *, max_length: int = MAX_LENGTH
) -> Comparison:
    """Decode `batch` as the server does, with the bundle, and by `generate`, with the model behind the bundle."""
    forced = model.generation_config.forced_bos_token_id
    forced_ids = () if forced is None else (forced,)
    options = DecodingOptions(max_length=max_length, beam_size=beam_size)
    result = Comparison()
    with BundleDecoder(bundle, rows=32) as driver:
        found = driver.together([Sentence(source, options, forced_ids, len(forced_ids)) for source in batch])
    for source, ours, theirs in zip(batch, found, generate(model, batch, beam_size, max_length), strict=True):
        result.add(source, ours, theirs)
    return result


def export(folder: Path, output: Path, log: Callable[[str], None] = lambda _line: None, **settings: Any) -> Bundle:
    """Export the model in `folder` with a tokenizer of letters. Most of the model's ids have no piece in it."""
    architecture = next(one for one in ARCHITECTURES if one.model_type == model_type(folder))
    reader = hugging_face_reader(dataclasses.replace(architecture, tokenizer=_letters))
    values = ExportSettings(checkpoint=folder, output=output, **settings)
    with no_decomposition():
        export_checkpoint(values, log, reader=reader)
    return load_bundle(output)


def export_drawn(
    name: str,
    seed: int = 0,
    *,
    config: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    spread: float = 0.0,
    **settings: Any,
) -> tuple[Any, Bundle]:
    """Return one of `MODELS` with changes to its `config` and `generation`, and its bundle.

    The bundle is exported once for a test session. The folder `model` beside it is what it is exported from. `spread`
    takes the place of the model's own, unless it is 0.
    """
    drawn = MODELS[name]
    drawn = dataclasses.replace(
        drawn,
        config={**drawn.config, **(config or {})},
        generation={**drawn.generation, **(generation or {})},
        spread=spread or drawn.spread,
    )
    model = draw(drawn, seed)

    def make(folder: Path) -> None:
        model.save_pretrained(folder / "model")
        export(folder / "model", folder / "bundle", threads=1, **settings)

    return model, load_bundle(stored(("hugging face", drawn, seed, sorted(settings.items())), make) / "bundle")


def draw_marian(folder: Path) -> Any:
    """Write a folder of Marian with a tokenizer of its own; return the model in it."""
    foreign_folders.marian(folder)
    pieces = json.loads((folder / "vocab.json").read_text())
    pad = pieces["<pad>"]
    ids = {"vocab_size": len(pieces), "pad_token_id": pad, "decoder_start_token_id": pad}
    model = draw(Model("Marian", {**_MARIAN, **ids}, {"bad_words_ids": [[pad]]}))
    model.save_pretrained(folder)
    return model


def _letters(_folder: Path, _config: Mapping[str, Any]) -> ForeignTokenizer:
    entry = SentencePieceTokenizerEntry(source="source.spm", target="source.spm")
    languages = Languages(source=("en",), target=("de",))
    return ForeignTokenizer(TokenizerFiles(entry, {"source.spm": _spm()}), languages)


@cache
def _spm() -> bytes:
    return vocabulary(["abcdefghijklmnopqrstuvwxyz"], 60, model_type="char")
