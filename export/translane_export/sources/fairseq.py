"""Reads Transformers that fairseq trained for translation, without fairseq.

A folder has the checkpoint (``checkpoint_best.pt``, ``model.pt``, or the only ``.pt`` file), ``dict.SOURCE.txt`` and
``dict.TARGET.txt`` as preprocessing wrote them, and the SentencePiece model that split the texts. What differs from
the paper's Transformer: sentences are decoded from the end-of-sentence symbol on, the first position is number 2, and
sinusoids come as all sines before all cosines. Padding is never generated.

https://github.com/facebookresearch/fairseq (fairseq/models/transformer, fairseq/data/dictionary.py)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import read_text
from translane_export.model.config import Activation
from translane_export.sources.architectures import LAYER_NAMES
from translane_export.sources.inert_pickle import plain, read_inert
from translane_export.sources.model_settings import ModelSettings
from translane_export.sources.numbered_pieces import find_sentencepiece, numbered_pieces
from translane_export.sources.placed_tensors import POSITIONS, find_table, named, place_tensors, sinusoids, split_packed
from translane_export.sources.weight_files import all_tensors, stored_tensors
from translane_server.bundle.manifest import Languages
from translane_server.core.terminal import shown

_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # each dictionary's first symbols, which its file leaves out
_BOS, _PAD, _EOS, _UNK = range(4)
_FIRST_POSITION = _PAD + 1
_PREFERRED = ("checkpoint_best.pt", "model.pt")
_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
_STACK = {"embedding.tokens": "embed_tokens", "embedding.norm": "layernorm_embedding", "final_norm": "layer_norm"}
_NAMES = {
    **{ours: theirs.removeprefix("model.") for ours, theirs in LAYER_NAMES.items()},
    **named("encoder", "encoder", _STACK),
    **named("decoder", "decoder", _STACK),
    "output_projection": "decoder.output_projection",
}
_LEARNED = "{}.embed_positions.weight"
# The last release adds copies to the encoder's layers, for a fast path; it never reads those of a file.
_IGNORED = (
    r"(encoder|decoder)\.(version|embed_positions\.(weights?|_float_tensor))"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)
_UNSUPPORTED = (
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "base_layers",
    "char_inputs",
    "cross_self_attention",
    "decoder_add_adapters",
    "decoder_layers_to_keep",
    "decoder_recurrent_stacking",
    "encoder_add_adapters",
    "encoder_layers_to_keep",
    "encoder_recurrent_stacking",
    "lang_tok_replacing_bos_eos",
    "merge_src_tgt_embed",
    "no_cross_attention",
    "no_decoder_final_norm",
    "prepend_bos",
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
    "use_factorized_embedding",
)
# What the first releases called the norms of a layer, in order.
_OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def is_fairseq(folder: Path) -> bool:
    """Whether there is a .pt file beside a dictionary."""
    return any(folder.glob("*.pt")) and any(folder.glob("dict.*.txt"))


def read_fairseq(folder: Path) -> Checkpoint:
    """Read the folder; its settings name the languages."""
    path = _checkpoint_file(folder)
    content = read_inert(path)
    settings = _settings(content, path)
    sizes = _sizes(settings)
    languages = [_language(settings, folder, side) for side in ("source_lang", "target_lang")]
    tensors = _modern_names(_tensors(content, path), settings)
    ids: list[dict[str, int]] = []
    for language, side, stack in zip(languages, ("source", "target"), POSITIONS, strict=True):
        dictionary = folder / f"dict.{language}.txt"
        ids.append(_read_dictionary(dictionary))
        symbols, size = 1 + max(ids[-1].values()), len(find_table(tensors, f"{stack}.embed_tokens.weight", path))
        if symbols != size:
            raise ExportError(f"{dictionary}: it has {symbols} symbols, and the model embeds {size}")
        sizes[f"{side}_vocab_size"] = size
    limits = [settings.whole(f"max_{side}_positions", 1024) for side in ("source", "target")]
    limits += [len(tensors[name]) - _FIRST_POSITION for name in _learned(settings) if name in tensors]
    fields = {**sizes, "max_positions": min(limits)}
    model = place_tensors(
        stored_tensors(tensors, path),
        fields,
        _NAMES,
        path=path,
        tables=_position_tables(settings, fields, tensors),
        unbiased="output_projection",
        ignored=_IGNORED,
    )
    source, target = languages
    models = find_sentencepiece(folder, ({"source", "src", source}, {"target", "tgt", "trg", target}))
    return Checkpoint(
        **model._asdict(),
        tokenizer=numbered_pieces(*models, *ids, source_eos=True),
        languages=Languages(source=(source,), target=(target,)),
        metadata={"architecture": str(settings.get("arch", settings.get("_name", "transformer")))},
    )


def _checkpoint_file(folder: Path) -> Path:
    files = sorted(folder.glob("*.pt"))
    for name in _PREFERRED:
        if folder / name in files:
            return folder / name
    if len(files) == 1:
        return files[0]
    raise ExportError(
        f"checkpoint {folder}: it has {len(files)} .pt files, and none is called {' or '.join(_PREFERRED)}"
    )


def _settings(content: Mapping[str, Any], path: Path) -> ModelSettings:
    """The model's settings and the task's, flat: "encoder_layers" whether saved so or as encoder.layers."""
    values, groups = (plain(content.get(name), path) for name in ("args", "cfg"))
    if isinstance(groups, dict) and not isinstance(values, dict):
        task, model = (groups.get(name) for name in ("task", "model"))
        if isinstance(task, dict) and isinstance(model, dict):
            values = {**task, **model, "task": task.get("task") or task.get("_name")}
    if not isinstance(values, dict):
        raise ExportError(
            f"{path}: it is no fairseq checkpoint, whose settings are under args, or cfg.task and cfg.model"
        )
    flat = dict(values)
    for side in ("encoder", "decoder"):
        if isinstance(values.get(side), dict):
            flat |= {f"{side}_{name}": value for name, value in values[side].items()}
    return ModelSettings({path: flat})


def _sizes(settings: ModelSettings) -> dict[str, Any]:
    """What the settings alone say of the fields of `TransformerConfig`. Refuses what is not supported."""
    settings.choice("task", ("translation",), "translation")
    settings.refuse(_UNSUPPORTED)
    before = settings.flag("encoder_normalize_before")
    if before != settings.flag("decoder_normalize_before"):
        settings.unsupported(
            "encoder_normalize_before",
            "encoder_normalize_before and decoder_normalize_before differ, which is not supported",
        )
    width = settings.same_whole("encoder_embed_dim", "decoder_embed_dim")
    heads = settings.same_whole("encoder_attention_heads", "decoder_attention_heads")
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if settings.whole(name, width) != width:
            settings.unsupported(name, f"{name} is not the {width} of decoder_embed_dim, which is not supported")
    sizes = {
        "d_model": width,
        "encoder_layers": settings.whole("encoder_layers"),
        "decoder_layers": settings.whole("decoder_layers"),
        "heads": settings.heads("encoder_attention_heads", heads, width),
        "ffn_size": settings.same_whole("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
        "activation": settings.activation("activation_fn", _ACTIVATIONS, "relu"),
        "norm": "pre" if before else "post",
        "positions": "none" if settings.flag("no_token_positional_embeddings") else "learned",
        "scale_embeddings": not settings.flag("no_scale_embedding"),
        "embedding_norm": settings.flag("layernorm_embedding"),
        "pad_id": _PAD,
        "unk_id": _UNK,
        "bos_id": _BOS,
        "eos_id": _EOS,
        "decoder_start_id": _EOS,
        "suppressed_ids": (_PAD,),
    }
    settings.check_supported()
    return sizes


def _language(settings: ModelSettings, folder: Path, name: str) -> str:
    language = settings.get(name)
    if not isinstance(language, str):
        raise ExportError(f"{settings.path}: {name} is {shown(language)}, and it says which dict.LANGUAGE.txt is whose")
    if not (folder / f"dict.{language}.txt").is_file():
        raise ExportError(f"{folder / f'dict.{language}.txt'}: the file is missing; it numbers the model's symbols")
    return language


def _read_dictionary(path: Path) -> dict[str, int]:
    """Ids by symbol. A line is a symbol, a space and a count; the special symbols come first without lines."""
    ids = {symbol: number for number, symbol in enumerate(_SPECIAL)}
    size = len(ids)
    for number, line in enumerate(read_text(path).removesuffix("\n").split("\n"), start=1):
        entry, flag = re.subn(r" #fairseq:overwrite$", "", line.rstrip())
        symbol, _, count = entry.rpartition(" ")
        if not symbol or not count.isdecimal():
            raise ExportError(f"{path}: line {number} is not a symbol, a space and a count")
        if symbol in ids and not flag:
            raise ExportError(f"{path}: line {number} has the symbol {symbol!r} again")
        ids[symbol] = size
        size += 1
    return ids


def _tensors(content: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    model = content.get("model")
    if not isinstance(model, dict) or not all_tensors(model):
        raise ExportError(f"{path}: it is no fairseq checkpoint, whose tensors are under model")
    if not any(name.startswith("encoder.") for name in model) or not any(name.startswith("decoder.") for name in model):
        raise ExportError(f"{path}: its model is no encoder and decoder, and only those are supported")
    return model


def _modern_names(tensors: Mapping[str, Tensor], settings: ModelSettings) -> dict[str, Tensor]:
    """Bring what older releases saved to the newest one's names; add the projection where it is an embedding."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in split_packed(tensors).items():
        if found := re.fullmatch(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.([0-2])\.(.*)", name):
            norms = _OLD_NORMS[found[1]]
            number = int(found[3])
            new = norms[number] if number < len(norms) else f"layer_norms.{number}"
            renamed[f"{found[1]}{found[2]}{new}.{found[4]}"] = tensor
        elif name == "decoder.embed_out":
            renamed["decoder.output_projection.weight"] = tensor
        else:
            renamed[name] = tensor
    shared = settings.flag("share_all_embeddings") or settings.flag("share_decoder_input_output_embed")
    if shared and "decoder.embed_tokens.weight" in renamed:
        renamed.setdefault("decoder.output_projection.weight", renamed["decoder.embed_tokens.weight"])
    return renamed


def _learned(settings: ModelSettings) -> list[str]:
    return [_LEARNED.format(side) for side in POSITIONS if settings.flag(f"{side}_learned_pos")]


def _position_tables(
    settings: ModelSettings, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Callable[[], Tensor]]:
    """What makes each stack's vectors [positions, M] from the first position on, by our names."""
    if fields["positions"] == "none":
        return {}
    count, tables = fields["max_positions"], dict[str, Callable[[], Tensor]]()
    for side, ours in POSITIONS.items():
        if (theirs := _LEARNED.format(side)) in _learned(settings):
            tables[ours] = find_table(tensors, theirs, settings.path)[_FIRST_POSITION:][:count].float
        else:
            tables[ours] = partial(sinusoids, _FIRST_POSITION, count, fields["d_model"])
    return tables
