"""Hugging Face's `generate` on the same weights: the reference for greedy and beam search.

`GenerateOracle` wraps a `Transformer` as a `PreTrainedModel`. So the search, the logits processors and the warpers come
from the transformers library. Nothing is cached: every step runs the whole prefix through PyTorch.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from transformers import GenerationConfig, GenerationMixin, LogitsProcessorList, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from helpers.hugging_face import Generated, run_generate
from translane_export.graphs.numerics import WeightStorage, as_stored, choose_numerics
from translane_export.model import Transformer
from translane_export.sources.bundle import read_bundle
from translane_server.bundle.bundle import load_bundle
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence


class _Config(PreTrainedConfig):
    model_type = "translane"


class _Encoder(torch.nn.Module):
    main_input_name = "input_ids"

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_kwargs: object) -> BaseModelOutput:
        return BaseModelOutput(self.transformer.encode(input_ids, attention_mask.sum(1)))


class _GenerateModel(PreTrainedModel, GenerationMixin):
    """The part of a `PreTrainedModel` that `generate` needs. `post_init` is not called: it would initialise weights."""

    config_class = _Config
    main_input_name = "input_ids"

    def __init__(self, config: _Config, transformer: Transformer) -> None:
        super().__init__(config)
        self.encoder = _Encoder(transformer)
        self.transformer = transformer

    def get_encoder(self, *_args: object, **_kwargs: object) -> _Encoder:
        return self.encoder

    def forward(
        self,
        *,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        encoder_outputs: BaseModelOutput,
        **_kwargs: object,
    ) -> Seq2SeqLMOutput:
        memory, lengths = encoder_outputs.last_hidden_state, attention_mask.sum(1)
        assert memory is not None
        return Seq2SeqLMOutput(logits=self.transformer.decode(decoder_input_ids, memory, lengths)[:, -1:])


class GenerateOracle:
    """Decodes sentences with Hugging Face's `generate`.

    Args:
        transformer: the weights, which are not changed.
        decoder_start: the first id that the decoder is fed; by default the config's bos.
    """

    def __init__(self, transformer: Transformer, decoder_start: int | None = None) -> None:
        config = transformer.config
        self.transformer = transformer
        self.vocab_size, self.eos, self.pad = config.target_vocab_size, config.eos_id, config.pad_id
        self.decoder_start = config.bos_id if decoder_start is None else decoder_start
        values: dict[str, Any] = {
            "is_encoder_decoder": True,
            "vocab_size": config.target_vocab_size,
            "pad_token_id": self.pad,
            "eos_token_id": self.eos,
        }
        # Any: what it inherits is typed in part.
        self._model = cast(Any, _GenerateModel(_Config(**values), transformer))
        self._model.eval()

    def generate(self, sentences: Sequence[Sentence]) -> list[Generated]:
        """Decode `sentences`. Sentences with the same options and prefix length are decoded together."""
        together = defaultdict(list)
        for index, sentence in enumerate(sentences):
            together[sentence.options, len(sentence.forced_ids)].append(index)
        results: dict[int, Generated] = {}
        for (options, _), indices in together.items():
            results.update(zip(indices, self._generate([sentences[index] for index in indices], options), strict=True))
        return [results[index] for index in range(len(sentences))]

    def rescore(self, sentence: Sentence, token_ids: Sequence[int], *, ended: bool) -> float:
        """Return `generate`'s score of a hypothesis: the processors' scores of its tokens, added and normalised.

        With greedy search the scores are logits, which only show how close two choices were.
        """
        options, prompt = sentence.options, [self.decoder_start, *sentence.forced_ids]
        target = [self.decoder_start, *token_ids, *([self.eos] if ended else [])]
        scores = self.logits(sentence.source_ids, target[:-1])  # [T, V]
        if options.beam_size > 1:
            scores = torch.log_softmax(scores, dim=1)
        processors = self.processors(options, len(prompt))
        total = 0.0
        for position in range(len(prompt), len(target)):
            fed = cast(torch.LongTensor, torch.tensor([target[:position]]))
            processed = processors(fed, scores[position - 1 : position].clone())
            total += float(processed[0, target[position]])
        length = len(target) - len(prompt)
        return total / length**options.length_penalty if options.beam_size > 1 and length else total

    def log_probs(self, source_ids: Sequence[int], token_ids: Sequence[int]) -> torch.Tensor:
        """Return the natural log-probability of each token under the model alone (teacher forcing), [T]."""
        target = [self.decoder_start, *token_ids]
        rows = torch.log_softmax(self.logits(source_ids, target[:-1]), dim=1)
        return rows[torch.arange(len(token_ids)), torch.tensor(token_ids, dtype=torch.int64)]

    def processors(self, options: DecodingOptions, prompt_length: int) -> LogitsProcessorList:
        """Return the processors that `generate` makes of `options`; with `options.sampling` the warpers, too."""
        config = self._generation_config(options)
        config._eos_token_tensor = torch.tensor([self.eos])
        processors: LogitsProcessorList = self._model._get_logits_processor(
            config, input_ids_seq_length=prompt_length, device="cpu"
        )
        return processors

    def _generate(self, sentences: Sequence[Sentence], options: DecodingOptions) -> list[Generated]:
        with _one_thread():
            found = run_generate(
                self._model,
                [sentence.source_ids for sentence in sentences],
                options.beam_size,
                decoder_input_ids=torch.tensor([[self.decoder_start, *sentence.forced_ids] for sentence in sentences]),
                generation_config=self._generation_config(options),
            )
        if options.beam_size > 1:
            return found
        return [self._scored(sentence, generated) for sentence, generated in zip(sentences, found, strict=True)]

    def _scored(self, sentence: Sentence, generated: Generated) -> Generated:
        """Give the hypothesis of a greedy search its score: the sum of its log-probabilities under the model alone."""
        [best] = generated.hypotheses
        log_probs = self.log_probs(sentence.source_ids, [*best.token_ids, *[self.eos] * best.is_complete])
        score = float(log_probs[len(sentence.forced_ids) :].sum())
        return replace(generated, hypotheses=(replace(best, score=score),))

    def logits(self, source_ids: Sequence[int], fed: Sequence[int]) -> torch.Tensor:
        """Return the logits after each token in `fed`, [T, V]."""
        lengths = torch.tensor([len(source_ids)])
        with torch.inference_mode(), _one_thread():
            memory = self.transformer.encode(torch.tensor([source_ids]), lengths)
            return self.transformer.decode(torch.tensor([fed]), memory, lengths)[0]

    def _generation_config(self, options: DecodingOptions) -> GenerationConfig:
        sampling = options.sampling
        values: dict[str, Any] = {}
        if sampling:
            values = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
        return GenerationConfig(
            max_new_tokens=options.max_length,
            min_new_tokens=options.min_length,
            num_beams=options.beam_size,
            num_return_sequences=options.num_hypotheses,
            length_penalty=options.length_penalty,
            early_stopping=options.early_stopping,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            repetition_penalty=float(options.repetition_penalty),
            suppress_tokens=list(options.suppressed_ids) or None,
            do_sample=bool(sampling),
            use_cache=False,
            pad_token_id=self.pad,
            eos_token_id=self.eos,
            decoder_start_token_id=self.decoder_start,
            **values,
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run on one thread: for such small work, a busy machine makes other threads wait too long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def bundle_transformer(folder: Path) -> Transformer:
    """Return the PyTorch model in a bundle, with its weights and positions as they are stored."""
    checkpoint, manifest = read_bundle(folder), load_bundle(folder).manifest
    model = Transformer(checkpoint.config)
    model.load_state_dict(checkpoint.state_dict)
    storage = cast(WeightStorage, manifest.weight_storage)
    return as_stored(model, choose_numerics(manifest.precision, storage)).eval()
