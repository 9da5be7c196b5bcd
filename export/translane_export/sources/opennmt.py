"""Reads Transformers that OpenNMT-py trained for translation, without OpenNMT-py.

A folder has one ``.pt`` file, whose vocabularies are inside (lists in version 3, torchtext's objects before), and the
SentencePiece model that split the texts. What differs from the paper's Transformer: norms come first, with 1e-6 in
place of 1e-5, and sources have no end-of-sentence symbol. Languages are not saved.

https://github.com/OpenNMT/OpenNMT-py (onmt/encoders, onmt/decoders, onmt/modules, onmt/inputters)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.model.config import Activation
from translane_export.sources.inert_pickle import Record, plain, read_inert
from translane_export.sources.model_settings import ModelSettings
from translane_export.sources.numbered_pieces import find_sentencepiece, numbered_pieces
from translane_export.sources.placed_tensors import POSITIONS, find_table, named, place_tensors
from translane_export.sources.weight_files import all_tensors, stored_tensors
from translane_server.bundle.manifest import Languages
from translane_server.text.language_tags import UNDETERMINED

_OTHERS = ("config.json", "torchscript.json")  # other formats that may have .pt files have one of these
_PAD, _UNK, _EOS = "<blank>", "<unk>", "</s>"
_MOST_POSITIONS = 1024  # of the 5,000 that are always stored, whatever lengths the model was trained with
_PART = {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"}
_EMBEDDING = "{}.embeddings.make_embedding.emb_luts.0"
_TABLE = "{}.embeddings.make_embedding.pe.pe"
_ATTENTION = {"q_proj": "linear_query", "k_proj": "linear_keys", "v_proj": "linear_values", "out_proj": "final_linear"}
_FEED_FORWARD = {"up_proj": "w_1", "down_proj": "w_2"}
_GATED = {"gate_proj": "w_1", "up_proj": "w_3", "down_proj": "w_2"}
_ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "silu": "silu", "gated-gelu": "gelu"}
_GATES = ("silu", "gated-gelu")  # these come with a third matrix
_UNSUPPORTED = (
    "copy_attn",
    "max_relative_positions",
    "multiquery",
    "num_experts",
    "num_kv",
    "parallel_residual",
    "quant_layers",
    "lora_layers",
)
_CHOICES = {
    "model_task": ("seq2seq",),
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "layer_norm": ("standard",),
    "generator_function": ("softmax",),
}
_UNBIASED = r".*\.(q_proj|k_proj|v_proj|out_proj|gate_proj|up_proj|down_proj)"
_IGNORED = r".*\.pe\.pe|decoder\.transformer_layers\.\d+\.mask"


def is_opennmt(folder: Path) -> bool:
    """Whether there is a .pt file, and nothing of another format beside it."""
    others = any(folder.glob("dict.*.txt")) or any((folder / name).is_file() for name in _OTHERS)
    return any(folder.glob("*.pt")) and not others


def read_opennmt(folder: Path) -> Checkpoint:
    """Read the folder, which does not say what the languages are."""
    files = sorted(folder.glob("*.pt"))
    if len(files) != 1:
        raise ExportError(f"checkpoint {folder}: it has {len(files)} .pt files; leave the one to export")
    path = files[0]
    content = read_inert(path)
    settings = _settings(content, path)
    source_ids, target_ids = (_vocabulary(content, side, path) for side in ("src", "tgt"))
    tensors = _tensors(content, path)
    start = _start_token(content, settings)
    _check_vocabularies(source_ids, target_ids, start, tensors, path)
    source_ids = _free_special_ids(source_ids, target_ids, start, tensors)
    fields = _fields(settings, tensors, target_ids, start)
    tables = {
        ours: partial(_positions, find_table(tensors, _TABLE.format(side), path), fields["max_positions"])
        for side, ours in POSITIONS.items()
    }
    model = place_tensors(
        stored_tensors(tensors, path),
        fields,
        _names(settings),
        path=path,
        tables=tables,
        unbiased=_UNBIASED,
        ignored=_IGNORED,
    )
    models = find_sentencepiece(folder, ({"source", "src"}, {"target", "tgt"}))
    return Checkpoint(
        **model._asdict(),
        tokenizer=numbered_pieces(*models, source_ids, target_ids, source_eos=False),
        languages=Languages(source=(UNDETERMINED,), target=(UNDETERMINED,)),
    )


def _positions(table: Tensor, count: int) -> Tensor:
    """The vectors [count, M] of a stored table [positions, 1, M]."""
    return table.flatten(1)[:count].float()


def _settings(content: Mapping[str, Any], path: Path) -> ModelSettings:
    values = plain(content.get("opt"), path)
    if not isinstance(values, dict):
        raise ExportError(f"{path}: it is no OpenNMT-py checkpoint, whose settings are under opt")
    settings = ModelSettings({path: values})
    settings.refuse(_UNSUPPORTED)
    for name, supported in _CHOICES.items():
        settings.choice(name, supported, supported[0])
    if not settings.flag("position_encoding"):
        settings.unsupported(
            "position_encoding", "position_encoding is false, and only models that have it are supported"
        )
    settings.activation("pos_ffn_activation_fn", _ACTIVATIONS, "relu")
    settings.check_supported()
    return settings


def _vocabulary(content: Mapping[str, Any], side: str, path: Path) -> dict[str, int]:
    """Ids by token, of the side "src" or "tgt"."""
    vocabularies = content.get("vocab")
    if isinstance(vocabularies, list):  # of pairs, in the first releases
        vocabularies = dict(pair for pair in vocabularies if isinstance(pair, tuple) and len(pair) == 2)
    found = vocabularies.get(side) if isinstance(vocabularies, dict) else None
    tokens = _torchtext_tokens(found) if isinstance(found, Record) else found
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ExportError(f"{path}: it has no list of tokens under vocab.{side}, where OpenNMT-py saves them")
    if isinstance(vocabularies, dict) and vocabularies.get("src_feats"):
        raise ExportError(f"{path}: vocab.src_feats: source features are not supported")
    ids: dict[str, int] = {}
    for number, token in enumerate(tokens):
        ids.setdefault(token, number)
    return ids


def _torchtext_tokens(found: Any) -> Any:
    """A field's vocabulary, or that of the only field in a field, or a vocabulary itself."""
    for _ in range(3):
        state = found.state if isinstance(found, Record) and isinstance(found.state, dict) else {}
        if "itos" in state:
            return state["itos"]
        fields = state.get("fields")
        found = fields[0][1] if isinstance(fields, list) and len(fields) == 1 else state.get("vocab")
    return None


def _tensors(content: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for part, prefix in (("model", ""), ("generator", "generator.")):
        found = content.get(part)
        if not isinstance(found, dict) or not all_tensors(found):
            raise ExportError(f"{path}: it is no OpenNMT-py checkpoint, whose tensors are under model and generator")
        # before version 3 the generator was a sequence of which the projection is the first
        tensors |= {prefix + (name.removeprefix("0.") if prefix else name): found[name] for name in found}
    return tensors


def _start_token(content: Mapping[str, Any], settings: ModelSettings) -> str:
    vocabularies = content["vocab"]
    start = vocabularies.get("decoder_start_token") if isinstance(vocabularies, dict) else None
    return str(start or settings.get("decoder_start_token", "<s>"))


def _check_vocabularies(
    source_ids: Mapping[str, int],
    target_ids: Mapping[str, int],
    start: str,
    tensors: Mapping[str, Tensor],
    path: Path,
) -> None:
    for side, stack, ids in (("src", "encoder", source_ids), ("tgt", "decoder", target_ids)):
        rows, tokens = len(find_table(tensors, f"{_EMBEDDING.format(stack)}.weight", path)), 1 + max(ids.values())
        if rows < tokens:
            raise ExportError(f"{path}: vocab.{side} has {tokens} tokens, and the model embeds {rows}")
    for token in (_PAD, _UNK, _EOS, start):
        if token not in target_ids:
            raise ExportError(f"{path}: vocab.tgt has no {token}")
    for token in (_PAD, _UNK):
        if source_ids.get(token) != target_ids[token]:
            raise ExportError(f"{path}: {token} is not the same id in vocab.src and vocab.tgt, which is not supported")


def _free_special_ids(
    source_ids: Mapping[str, int], target_ids: Mapping[str, int], start: str, tensors: dict[str, Tensor]
) -> dict[str, int]:
    """Number source words anew that have the ids of the target's start and end, and copy their vectors there.

    Before version 3 sources had neither, and a vocabulary of their own began with words there; in a bundle these ids
    stand for no text on either side.
    """
    ids = dict(source_ids)
    name = f"{_EMBEDDING.format('encoder')}.weight"
    for special in (start, _EOS):
        taken = [token for token, number in ids.items() if number == target_ids[special] and token != special]
        for token in taken:
            table = tensors[name]
            tensors[name] = torch.cat([table, table[ids[token]][None]])  # [V, M] -> [V + 1, M]
            ids[token] = len(table)
    return ids


def _names(settings: ModelSettings) -> dict[str, str]:
    """Our modules to theirs."""
    gated = settings.get("pos_ffn_activation_fn") in _GATES
    layer = {
        **named("self_attention", "self_attn", _ATTENTION),
        **named("cross_attention", "context_attn", _ATTENTION),
        **named("feed_forward", "feed_forward", _GATED if gated else _FEED_FORWARD),
        "feed_forward_residual.norm": "feed_forward.layer_norm",
        "cross_attention_residual.norm": "layer_norm_2",
    }
    names = {"output_projection": "generator"}
    for side, layers in _PART.items():
        own = {**layer, "self_attention_residual.norm": "layer_norm" if side == "encoder" else "layer_norm_1"}
        names |= named(f"{side}.layers.*", f"{layers}.*", own)
        names[f"{side}.embedding.tokens"] = _EMBEDDING.format(side)
        names[f"{side}.final_norm"] = f"{side}.layer_norm"
    return names


def _fields(
    settings: ModelSettings, tensors: Mapping[str, Tensor], target_ids: Mapping[str, int], start: str
) -> dict[str, Any]:
    """Those of `TransformerConfig`."""
    path = settings.path
    source, target = (find_table(tensors, f"{_EMBEDDING.format(side)}.weight", path) for side in _PART)
    tables = [find_table(tensors, _TABLE.format(side), path) for side in _PART]
    fields = {
        "source_vocab_size": len(source),
        "target_vocab_size": len(target),
        "d_model": source.shape[-1],
        "encoder_layers": settings.whole("enc_layers"),
        "decoder_layers": settings.whole("dec_layers"),
        "heads": settings.heads("heads", settings.whole("heads", 8), source.shape[-1]),
        "ffn_size": len(find_table(tensors, f"{_PART['encoder']}.0.feed_forward.w_1.weight", path)),
        "activation": settings.activation("pos_ffn_activation_fn", _ACTIVATIONS, "relu"),
        "gated": settings.get("pos_ffn_activation_fn") in _GATES,
        "norm": "pre",
        "positions": "learned",
        "max_positions": min(_MOST_POSITIONS, *(len(table) for table in tables)),
        "layer_norm_eps": settings.number("norm_eps", 1e-6),
        "pad_id": target_ids[_PAD],
        "unk_id": target_ids[_UNK],
        "bos_id": target_ids[start],
        "eos_id": target_ids[_EOS],
        "decoder_start_id": target_ids[start],
    }
    settings.check_supported()
    return fields
