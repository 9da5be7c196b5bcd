"""Checkpoints with random weights as fairseq and OpenNMT-py save them, and the models in the checkpoints.

Neither project is needed. Some classes of transformers (FSMT, M2M100, BART) come from fairseq's Transformer, and have
its arrangement and names. So these classes compute what fairseq's checkpoints mean. OpenNMT-py's Transformer is
PyTorch's own, with the norms first.
"""

import argparse
import math
import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import pytest
import sentencepiece
import torch
import transformers
from torch import Tensor, nn

from helpers.vocabularies import vocabulary

transformers.logging.set_verbosity_error()

SOURCE_LINES = ("the cat sat on the mat", "a dog ran over the hill and far away", "seven small birds sing in the tree")
TARGET_LINES = ("die Katze sass auf der Matte", "ein Hund lief weit weg", "sieben kleine Vögel singen im Baum")
WIDTH, HEADS, FFN = 32, 2, 40
SPREAD = 0.2


def train_pieces(path: Path, lines: tuple[str, ...]) -> list[str]:
    """Write a SentencePiece model of `lines`; return its text pieces in reverse alphabetical order."""
    path.write_bytes(vocabulary(lines * 20, 40, character_coverage=1.0, normalization_rule_name="identity"))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]
    return sorted(pieces, reverse=True)


def randomize(model: nn.Module, seed: int, spread: float, fixed: str = "(none)") -> Any:
    """Draw every parameter without `fixed` in its name; matrices get the standard deviation `spread`."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if fixed not in name:
                norm = parameter.ndim == 1 and name.endswith("weight")
                parameter.copy_(torch.randn_like(parameter) * (spread if parameter.ndim > 1 else 0.1) + norm)
    return model.eval()


@dataclass
class Made:
    """A checkpoint folder, its content and model, and the symbols of its vocabularies by id."""

    folder: Path
    content: dict[str, Any]
    model: Any
    source_symbols: list[str]
    target_symbols: list[str]

    @property
    def path(self) -> Path:
        return next(self.folder.glob("*.pt"))

    def save(self, **how: Any) -> None:
        """Write the checkpoint again, after a change."""
        torch.save(self.content, self.path if any(self.folder.glob("*.pt")) else self.folder / "model.pt", **how)


def fairseq_checkpoint(folder: Path, kind: str) -> Made:
    """Write a fairseq checkpoint that computes as transformers' model of `kind`: "FSMT", "M2M100" or "Bart"."""
    folder.mkdir(parents=True, exist_ok=True)
    joint = kind != "FSMT"
    if joint:
        source = target = train_pieces(folder / "sentencepiece.bpe.model", SOURCE_LINES + TARGET_LINES)
    else:
        source = train_pieces(folder / "spm.en.model", SOURCE_LINES)
        target = train_pieces(folder / "spm.de.model", TARGET_LINES)
    symbols = []
    for language, pieces in (("en", source), ("de", target)):
        pieces = [*pieces[:-2], "madeupword0000"]  # two pieces of the tokenizer are unknown to the model
        lines = (f"{piece} {len(pieces) - number}\n" for number, piece in enumerate(pieces))
        (folder / f"dict.{language}.txt").write_text("".join(lines), encoding="utf-8")
        symbols.append(["<s>", "<pad>", "</s>", "<unk>", *pieces])
    model = _fairseq_model(kind, *(len(side) for side in symbols))
    tensors = {
        name.removeprefix("model.").replace("lm_head", "decoder.output_projection"): tensor.clone()
        for name, tensor in model.state_dict().items()
        if not name.startswith(("model.shared", "final_logits_bias"))
        and (kind == "Bart" or "embed_positions" not in name)
    }
    for side in ("encoder", "decoder"):
        tensors[f"{side}.version"] = torch.tensor([3.0])
        if kind != "Bart":
            tensors[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
    settings = {
        "arch": "transformer",
        "task": "translation",
        "source_lang": "en",
        "target_lang": "de",
        "activation_fn": "gelu" if kind == "Bart" else "relu",
        "max_source_positions": 48,
        "max_target_positions": 48,
        "share_decoder_input_output_embed": kind != "FSMT",
        "share_all_embeddings": joint,
        "no_scale_embedding": kind == "Bart",
        "layernorm_embedding": kind == "Bart",
        "decoder_input_dim": WIDTH,
        "decoder_output_dim": WIDTH,
        "adaptive_softmax_cutoff": None,
    }
    for side, layers in (("encoder", 2), ("decoder", 3)):
        settings |= {
            f"{side}_layers": layers,
            f"{side}_embed_dim": WIDTH,
            f"{side}_ffn_embed_dim": FFN,
            f"{side}_attention_heads": HEADS,
            f"{side}_normalize_before": kind == "M2M100",
            f"{side}_learned_pos": kind == "Bart",
        }
    content = {
        "args": argparse.Namespace(**settings),
        "cfg": None,
        "model": tensors,
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 5}],
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.zeros(3)}}},
    }
    made = Made(folder, content, model, *symbols)
    made.save()
    return made


def _fairseq_model(kind: str, source_size: int, target_size: int) -> Any:
    common: dict[str, Any] = {
        "d_model": WIDTH,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": FFN,
        "decoder_ffn_dim": FFN,
        "max_position_embeddings": 48,
        "scale_embedding": kind != "Bart",
        "activation_function": "gelu" if kind == "Bart" else "relu",
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    if kind == "FSMT":
        config = transformers.FSMTConfig(
            langs=["en", "de"],
            src_vocab_size=source_size,
            tgt_vocab_size=target_size,
            tie_word_embeddings=False,
            **common,
        )
        model = transformers.FSMTForConditionalGeneration(config)
    else:
        config = getattr(transformers, f"{kind}Config")(vocab_size=source_size, **common)
        model = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    return randomize(model, seed=1, spread=SPREAD, fixed="(none)" if kind == "Bart" else "embed_positions")


class NormsFirst(nn.Module):
    """OpenNMT-py's Transformer, made of PyTorch's layers."""

    def __init__(self, source_size: int, target_size: int) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": FFN, "dropout": 0.0}
        how: dict[str, Any] = {"layer_norm_eps": 1e-6, "batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**sizes, **how), 2, nn.LayerNorm(WIDTH, eps=1e-6), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**sizes, **how), 3, nn.LayerNorm(WIDTH, eps=1e-6)
        )
        self.source, self.target = nn.Embedding(source_size, WIDTH), nn.Embedding(target_size, WIDTH)
        self.generator = nn.Linear(WIDTH, target_size)
        self.table = nn.Parameter(torch.zeros(50, WIDTH))

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [B, T, V] for ids [B, S], lengths [B] and ids [B, T]."""
        padding = torch.arange(source_ids.shape[1]) >= source_lengths[:, None]
        memory = self.encoder(self._embed(self.source, source_ids), src_key_padding_mask=padding)
        later = torch.ones(2 * target_ids.shape[1:], dtype=torch.bool).triu(1)
        x = self._embed(self.target, target_ids)
        logits: Tensor = self.generator(self.decoder(x, memory, tgt_mask=later, memory_key_padding_mask=padding))
        return logits

    def _embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        x: Tensor = embedding(ids) * math.sqrt(WIDTH) + self.table[: ids.shape[1]]
        return x


_ENCODER_NORMS = {"norm1": "layer_norm", "norm2": "feed_forward.layer_norm"}
_DECODER_NORMS = {"norm1": "layer_norm_1", "norm2": "layer_norm_2", "norm3": "feed_forward.layer_norm"}


def opennmt_checkpoint(folder: Path, *, version: int = 3, biases: bool = True) -> Made:
    """Write an OpenNMT-py checkpoint of the given version. Its table of positions is random, to see that it is used."""
    folder.mkdir(parents=True, exist_ok=True)
    source = train_pieces(folder / "source.spm", SOURCE_LINES)
    target = train_pieces(folder / "target.spm", TARGET_LINES)
    specials = ["<unk>", "<blank>", "<s>", "</s>"]
    source_symbols = [*specials[: 4 if version == 3 else 2], *source[:-2]]
    target_symbols = [*specials, *target[:-2], "averyunlikelytoken0"]
    model = randomize(NormsFirst(len(source_symbols), len(target_symbols)), seed=2, spread=SPREAD)
    settings = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "enc_layers": 2,
        "dec_layers": 3,
        "heads": HEADS,
        "transformer_ff": FFN,
        "position_encoding": True,
        "max_relative_positions": 0,
        "copy_attn": False,
        "self_attn_type": "scaled-dot",
        "pos_ffn_activation_fn": "relu",
    }
    tensors = {}
    for side, layers, embedding, norms in (
        ("encoder", "encoder.transformer", model.source, _ENCODER_NORMS),
        ("decoder", "decoder.transformer_layers", model.target, _DECODER_NORMS),
    ):
        stack = getattr(model, side)
        tensors[f"{side}.embeddings.make_embedding.emb_luts.0.weight"] = embedding.weight
        tensors[f"{side}.embeddings.make_embedding.pe.pe"] = model.table.unsqueeze(1)
        tensors |= _module(f"{side}.layer_norm", stack.norm)
        for number, layer in enumerate(stack.layers):
            tensors |= _opennmt_layer(f"{layers}.{number}", layer, norms, biases)
    generator = {
        f"{'' if version == 3 else '0.'}{name}": tensor for name, tensor in model.generator.state_dict().items()
    }
    vocabularies: Any = {
        "src": source_symbols,
        "tgt": target_symbols,
        "data_task": "seq2seq",
        "decoder_start_token": "<s>",
    }
    content = {
        "model": {name: tensor.detach().clone() for name, tensor in tensors.items()},
        "generator": generator,
        "opt": argparse.Namespace(**settings),
        "vocab": vocabularies,
        "optim": {"training_step": 10, "optimizer": {"state": {}, "param_groups": [{"lr": 1e-3}]}},
    }
    made = Made(folder, content, model, source_symbols, target_symbols)
    if version == 3:
        made.save()
    else:
        with torchtext_classes() as field:
            content["vocab"] = {"src": field(source_symbols), "tgt": field(target_symbols)}
            made.save()
    return made


def _module(name: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{name}.{kind}": tensor for kind, tensor in module.state_dict().items()}


def _opennmt_layer(name: str, layer: Any, norms: Mapping[str, str], biases: bool) -> dict[str, Tensor]:
    tensors = {}
    for ours, theirs in (("self_attn", "self_attn"), ("multihead_attn", "context_attn")):
        attention = getattr(layer, ours, None)
        if attention is None:
            continue
        if not biases:
            with torch.no_grad():
                attention.in_proj_bias.zero_()
                attention.out_proj.bias.zero_()
        parts = zip(
            ("query", "keys", "values"), attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True
        )
        for part, weight, bias in parts:
            tensors[f"{name}.{theirs}.linear_{part}.weight"] = weight
            tensors[f"{name}.{theirs}.linear_{part}.bias"] = bias
        tensors |= _module(f"{name}.{theirs}.final_linear", attention.out_proj)
    if not biases:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(".bias")}
    tensors |= _module(f"{name}.feed_forward.w_1", layer.linear1) | _module(f"{name}.feed_forward.w_2", layer.linear2)
    for ours, theirs in norms.items():
        tensors |= _module(f"{name}.{theirs}", getattr(layer, ours))
    return tensors


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@contextmanager
def modules(*classes: tuple[str, type]) -> Any:
    """Let pickles name `classes` by these paths, as if the modules that define them were installed."""
    made: dict[str, ModuleType] = {}
    for path, cls in classes:
        module, _, name = path.rpartition(".")
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            made.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        setattr(made[module], name, cls)
        cls.__module__, cls.__qualname__, cls.__name__ = module, name, name
    with pytest.MonkeyPatch.context() as patch:
        for path, stand_in in made.items():
            patch.setitem(sys.modules, path, stand_in)
        yield


@contextmanager
def torchtext_classes() -> Any:
    """Yield a function that makes a field of symbols with the classes that OpenNMT-py had before version 3."""
    multi, field, vocab = (type(name, (), {}) for name in ("TextMultiField", "Field", "Vocab"))

    def make(symbols: list[str]) -> Any:
        made = {"multi": multi(), "field": field(), "vocab": vocab()}
        made["vocab"].__dict__.update(itos=symbols, stoi={symbol: number for number, symbol in enumerate(symbols)})
        made["field"].__dict__.update(sequential=True, dtype=torch.int64, vocab=made["vocab"])
        made["multi"].__dict__.update(fields=[("src", made["field"])])
        return made["multi"]

    with modules(
        ("onmt.inputters.text_dataset.TextMultiField", multi),
        ("torchtext.data.field.Field", field),
        ("torchtext.vocab.Vocab", vocab),
    ):
        yield make
