"""Folders with random weights as Marian saves them, and what other libraries make of the same weights.

CTranslate2 reads the same files. MarianMT of transformers computes the same where norms come after sublayers. Both are
told what Marian does otherwise than they do by default: its sinusoids, and the 1e-6 of its norms. Attention is drawn
sharp, so that translations differ with their sources.
"""

import dataclasses
import json
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
import transformers

from helpers.pickled_checkpoints import SOURCE_LINES, TARGET_LINES, train_pieces
from translane_export.sources.placed_tensors import sinusoids

EPSILON = 1e-6  # of Marian's norms
POSITIONS = 512


@dataclass(frozen=True)
class MarianModel:
    """What a model has.

    Attributes:
        tying: which tables are one: "all", "target" (the target's and the output's), "source" (source's and target's),
            or "none".
    """

    activation: str = "swish"  # of the feed-forward networks, as Marian calls it
    pre_norm: bool = False  # whether norms come before sublayers
    embedding_norm: bool = False  # whether a norm comes after the embeddings
    tying: str = "all"
    output_bias: bool = True  # whether the output has a bias
    transposed: bool = False  # whether the output's own table is stored as newer releases store it
    float16: bool = False  # whether weights are stored in 16 bits
    ends: float = 1.5  # logit that the end of the sentence has more
    width: int = 32
    heads: int = 4
    ffn: int = 48
    encoder_layers: int = 2
    decoder_layers: int = 3
    settings: dict[str, Any] = field(default_factory=dict)  # further settings of the model


@dataclass
class MarianFolder:
    """A folder of Marian's, and what is in it."""

    folder: Path
    model: MarianModel
    arrays: dict[str, np.ndarray[Any, Any]]
    source: list[str]
    target: list[str]

    @property
    def path(self) -> Path:
        """The model's file."""
        return self.folder / "model.npz"

    def save(self) -> None:
        """Write the model's file again."""
        np.savez(self.path, **self.arrays)  # type: ignore[arg-type]


def marian_folder(folder: Path, model: MarianModel | None = None, *, seed: int = 0, joint: bool = True) -> MarianFolder:
    """Write a folder with a vocabulary for both sides, or one for each."""
    model = model or MarianModel()
    folder.mkdir(parents=True)
    lines = (SOURCE_LINES + TARGET_LINES,) * 2 if joint else (SOURCE_LINES, TARGET_LINES)
    words = [train_pieces(folder / f"{side}.spm", text) for side, text in zip(("source", "target"), lines, strict=True)]
    pieces = [["</s>", "<unk>", *words[0]], ["</s>", "<unk>", *words[1]]]
    names = ["opus.vocab.yml"] * 2 if joint else ["vocab.source.yml", "vocab.target.yml"]
    for name, side in zip(names, pieces, strict=True):
        text = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {id_}\n" for id_, piece in enumerate(side))
        (folder / name).write_text(text)
    vocabularies = "".join(f"  - {name}\n" for name in names)
    (folder / "decoder.yml").write_text(
        "relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n" + vocabularies + "beam-size: 6\nnormalize: 0.6\n"
        "word-penalty: 0\nmini-batch: 1\nmaxi-batch-sort: src\n"
    )
    made = MarianFolder(folder, model, _arrays(model, len(pieces[0]), len(pieces[1]), seed), pieces[0], pieces[1])
    made.save()
    return made


def settings_of(model: MarianModel) -> str:
    """The settings that a model has inside, as Marian's writer has them."""
    norms = ("n", "da", "n") if model.pre_norm else ("", "dan", "")
    settings: dict[str, Any] = {
        "bert-train-type-embeddings": True,
        "char-conv-filters-num": [200, 200],
        "dec-depth": model.decoder_layers,
        "dim-emb": model.width,
        "enc-depth": model.encoder_layers,
        "tied-embeddings-all": model.tying == "all",
        "transformer-decoder-autoreg": "self-attention",
        "transformer-dim-ffn": model.ffn,
        "transformer-ffn-activation": model.activation,
        "transformer-ffn-depth": 2,
        "transformer-guided-alignment-layer": "last",
        "transformer-heads": model.heads,
        "transformer-no-projection": False,
        "transformer-postprocess": norms[1],
        "transformer-postprocess-emb": "nd" if model.embedding_norm else "d",
        "transformer-postprocess-top": norms[2],
        "transformer-preprocess": norms[0],
        "transformer-tied-layers": [],
        "transformer-train-positions": False,
        "type": "transformer",
        "version": "v1.9.2 12cd13e 2020-01-17 10:01:34 -0800",
        **model.settings,
    }
    return "".join(f"{name}:{_written(value)}\n" for name, value in sorted(settings.items()))


def _written(value: Any) -> str:
    if isinstance(value, list):
        return "".join(f"\n  - {item}" for item in value) or "\n  []"
    return f" {json.dumps(value) if isinstance(value, bool) or value == '' else value}"


def _arrays(model: MarianModel, source: int, target: int, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray[Any, Any]] = {}

    def matrix(name: str, rows: int, columns: int, spread: float = 0.25) -> None:
        arrays[name] = (draw.standard_normal((rows, columns)) * spread).astype(np.float32)

    def norm(name: str, suffix: str) -> None:
        scale, bias = (draw.standard_normal((1, model.width)) * 0.1 for _ in range(2))
        arrays[f"{name}_ln_scale{suffix}"] = (1 + scale).astype(np.float32)
        arrays[f"{name}_ln_bias{suffix}"] = bias.astype(np.float32)

    width, suffix = model.width, "_pre" if model.pre_norm else ""
    for side, depth, parts in (
        ("encoder", model.encoder_layers, ("self",)),
        ("decoder", model.decoder_layers, ("self", "context")),
    ):
        if model.embedding_norm:
            norm(f"{side}_emb", "_pre")
        if model.pre_norm:
            norm(f"{side}_top", "")
        for layer in range(1, depth + 1):
            for part in parts:
                for kind in "qkvo":
                    spread = 0.8 if kind in "qk" else 0.5 if part == "context" else 0.25
                    matrix(f"{side}_l{layer}_{part}_W{kind}", width, width, spread)
                    matrix(f"{side}_l{layer}_{part}_b{kind}", 1, width, 0.1)
                norm(f"{side}_l{layer}_{part}_Wo", suffix)
            matrix(f"{side}_l{layer}_ffn_W1", width, model.ffn)
            matrix(f"{side}_l{layer}_ffn_b1", 1, model.ffn, 0.1)
            matrix(f"{side}_l{layer}_ffn_W2", model.ffn, width)
            matrix(f"{side}_l{layer}_ffn_b2", 1, width, 0.1)
            norm(f"{side}_l{layer}_ffn_ffn", suffix)
    if model.tying in ("all", "source"):
        matrix("Wemb", source, width)
    else:
        matrix("encoder_Wemb", source, width)
        matrix("decoder_Wemb", target, width)
    if model.tying in ("source", "none"):
        rows = (target, width) if model.transposed else (width, target)
        matrix("decoder_ff_logit_out_Wt" if model.transposed else "decoder_ff_logit_out_W", *rows)
    if model.output_bias:
        matrix("decoder_ff_logit_out_b", 1, target, 0.1)
        arrays["decoder_ff_logit_out_b"][0, 0] += model.ends
        arrays["decoder_ff_logit_out_b"][0, 1] = -200  # an unknown word's share is nothing, as of trained models
    if model.float16:
        arrays = {name: array.astype(np.float16) for name, array in arrays.items()}
    text = settings_of(model).encode() + b"\0"
    return {"special:model.yml": np.frombuffer(text, np.int8), **arrays}


def random_sentences(made: MarianFolder, count: int) -> list[list[int]]:
    """Source ids without their end."""
    pick = random.Random(1)
    return [pick.choices(range(2, len(made.source)), k=pick.randint(1, 15)) for _ in range(count)]


def ctranslate2_translator(made: MarianFolder, scratch: Path) -> Any:
    """CTranslate2's translator of its own conversion of the files.

    The converter is handed Marian's sinusoids as if they were stored, and the 1e-6 of Marian's norms.
    """
    import ctranslate2
    from ctranslate2.converters import MarianConverter

    copy = scratch / "copy"
    shutil.copytree(made.folder, copy)
    table = sinusoids(0, POSITIONS, made.model.width).numpy()
    np.savez(copy / "model.npz", **made.arrays, Wpos=table)  # type: ignore[arg-type]
    names = sorted(path.name for path in copy.glob("*vocab*.yml"))

    class Converter(MarianConverter):  # type: ignore[misc]
        def _load(self) -> Any:
            spec = super()._load()
            spec.config.layer_norm_epsilon = EPSILON
            return spec

    converter = Converter(str(copy / "model.npz"), [str(copy / name) for name in names])
    converter.convert(str(scratch / "converted"))
    return ctranslate2.Translator(str(scratch / "converted"), device="cpu", compute_type="float32", intra_threads=1)


def marian_mt(made: MarianFolder, source_size: int) -> Any:
    """MarianMT of transformers with the same weights; ids from the vocabulary's end on have a vector of zeros.

    Only for norms after sublayers and without one after the embeddings.
    """
    model, arrays = (
        made.model,
        {name: array.astype(np.float32) for name, array in made.arrays.items() if ":" not in name},
    )
    start = source_size - 1
    config = transformers.MarianConfig(
        vocab_size=source_size,
        d_model=model.width,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        encoder_attention_heads=model.heads,
        decoder_attention_heads=model.heads,
        encoder_ffn_dim=model.ffn,
        decoder_ffn_dim=model.ffn,
        max_position_embeddings=POSITIONS,
        activation_function={"gelu": "quick_gelu", "swish": "swish", "relu": "relu"}[model.activation],
        scale_embedding=True,
        pad_token_id=start,
        eos_token_id=0,
        decoder_start_token_id=start,
        forced_eos_token_id=None,
        share_encoder_decoder_embeddings=model.tying == "all",
        tie_word_embeddings=model.tying in ("all", "target"),
        dropout=0.0,
    )
    theirs = transformers.MarianMTModel(config).eval()
    state = {name: tensor for name, tensor in theirs.state_dict().items() if "embed_positions" in name}
    for name in state:
        state[name] = sinusoids(0, POSITIONS, model.width)
    for side, depth in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        rows = torch.zeros(source_size, model.width)
        table = arrays["Wemb" if "Wemb" in arrays else f"{side}_Wemb"]
        rows[: len(table)] = torch.from_numpy(table)
        state[f"model.{side}.embed_tokens.weight"] = rows
        for layer in range(depth):
            ours, found = f"model.{side}.layers.{layer}", f"{side}_l{layer + 1}"
            for part, other in (("self", "self_attn"), ("context", "encoder_attn"))[: 1 + (side == "decoder")]:
                for kind, linear in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
                    state[f"{ours}.{other}.{linear}.weight"] = torch.from_numpy(arrays[f"{found}_{part}_W{kind}"]).T
                    state[f"{ours}.{other}.{linear}.bias"] = torch.from_numpy(arrays[f"{found}_{part}_b{kind}"])[0]
                for kind, end in (("weight", "scale"), ("bias", "bias")):
                    array = arrays[f"{found}_{part}_Wo_ln_{end}"]
                    state[f"{ours}.{other}_layer_norm.{kind}"] = torch.from_numpy(array)[0]
            for number in "12":
                state[f"{ours}.fc{number}.weight"] = torch.from_numpy(arrays[f"{found}_ffn_W{number}"]).T
                state[f"{ours}.fc{number}.bias"] = torch.from_numpy(arrays[f"{found}_ffn_b{number}"])[0]
            for kind, end in (("weight", "scale"), ("bias", "bias")):
                state[f"{ours}.final_layer_norm.{kind}"] = torch.from_numpy(arrays[f"{found}_ffn_ffn_ln_{end}"])[0]
    output = state["model.decoder.embed_tokens.weight"]
    if model.tying in ("source", "none"):
        own = arrays.get("decoder_ff_logit_out_Wt")
        own = arrays["decoder_ff_logit_out_W"].T if own is None else own
        output = torch.zeros(source_size, model.width)
        output[: len(own)] = torch.from_numpy(own.copy())
    state["lm_head.weight"] = output
    bias = torch.full((1, source_size), -10_000.0)
    target = len(made.target)
    bias[0, :target] = torch.from_numpy(arrays["decoder_ff_logit_out_b"])[0] if model.output_bias else 0.0
    state["final_logits_bias"] = bias
    if "model.shared.weight" in theirs.state_dict():
        state["model.shared.weight"] = state["model.encoder.embed_tokens.weight"]
    theirs.load_state_dict(state)
    for module in theirs.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = EPSILON
    theirs.generation_config = transformers.GenerationConfig(
        pad_token_id=start, eos_token_id=0, decoder_start_token_id=start, suppress_tokens=[1, *range(target, start + 1)]
    )
    return theirs


def changed(model: MarianModel, **settings: Any) -> MarianModel:
    """The model with other settings, whatever its weights are."""
    return dataclasses.replace(model, settings={**model.settings, **settings})
