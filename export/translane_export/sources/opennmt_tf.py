"""Reads Transformers that OpenNMT-tf 2 trained, without TensorFlow.

A folder has a checkpoint of TensorFlow, ``model_description.py``, vocabularies, and the SentencePiece models that split
the texts. What differs from the paper's Transformer: positions count from 1 and are all sines before all cosines, norms
add Keras's 1e-3, and unknown words have a vector and a probability of their own, after the vocabulary's last. Sources
have no symbols for their start and end unless the settings say so.

https://github.com/OpenNMT/OpenNMT-tf (opennmt/layers/transformer.py, opennmt/layers/position.py)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_export.file_readers import read_text
from translane_export.sources.fairseq import sinusoids
from translane_export.sources.numbered_pieces import find_sentencepiece, numbered_pieces
from translane_export.sources.opennmt_tf_settings import (
    DESCRIPTION,
    Description,
    read_data_settings,
    read_description,
    read_vocabulary,
)
from translane_export.sources.placed_tensors import POSITIONS, find_table, place_tensors
from translane_export.sources.tensor_bundles import read_tensor_bundle
from translane_export.sources.weight_files import stored_tensors
from translane_export.sources.word_lists import END, PAD, START, UNK, NumberedWords
from translane_server.manifest import Languages, LanguageTemplates, LanguageTokens
from translane_server.text.language_tags import UNDETERMINED

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_WANTED = rf"model/(?!.*\.OPTIMIZER_SLOT).*{re.escape(_SUFFIX)}"
_LATEST = re.compile(r'^model_checkpoint_path: "([^"]*)"', re.MULTILINE)
_EPSILON = 1e-3  # tf.keras.layers.LayerNormalization's
_MOST_POSITIONS = 512  # sinusoids and relative positions have no limit; what models of sentences are trained with has
_SOURCE, _TARGET = (f"model/examples_inputter/{side}_inputter/embedding" for side in ("features", "labels"))
_OUTPUT = "model/decoder/output_layer"
_KEYS = "model/{}/layers/0/self_attention/layer/relative_position_keys"
_TABLE = "model/{}/position_encoder/position_embedding"
_PROJECTIONS = (
    ("q_proj", "linear_queries"),
    ("k_proj", "linear_keys"),
    ("v_proj", "linear_values"),
    ("out_proj", "linear_output"),
)


class OpenNmtTfReader:
    """Reads a checkpoint of TensorFlow as numbers, and the Python file beside it as text that is never run."""

    format = "OpenNMT-tf Transformer"
    family = "opennmt-tf"

    def recognises(self, folder: Path) -> bool:
        """Whether there is an index of a checkpoint of TensorFlow."""
        return any(folder.glob("*.index"))

    def read(self, folder: Path) -> Checkpoint:
        """Read the folder, which does not say what the languages are."""
        prefix = _latest(folder)
        path = prefix.with_name(f"{prefix.name}.index")
        found = read_tensor_bundle(prefix, _WANTED)
        tensors = {name.removesuffix(_SUFFIX): _oriented(name, tensor) for name, tensor in found.items()}
        if not tensors:
            raise ExportError(f"{path}: it has no tensor of a model as OpenNMT-tf 2 saves them, under model/")
        description = read_description(folder / DESCRIPTION)
        data = read_data_settings(folder)
        source, target = read_vocabulary(data.source), read_vocabulary(data.target)
        fields = _fields(tensors, description, path)
        _reorder(tensors, source, target, path)
        model = place_tensors(
            stored_tensors(tensors, path),
            fields,
            _names(pre_norm=fields["norm"] == "pre"),
            path=path,
            tables=_tables(fields, tensors),
            position_offset=1,
            unbiased=r"output_projection|.*\.(q_proj|k_proj|v_proj|out_proj)",
        )
        models = find_sentencepiece(folder, {"source", "src"}, {"target", "tgt"})
        ids = [{word: id_ for id_, word in enumerate(side.words)} for side in (source, target)]
        return Checkpoint(
            **model._asdict(),
            tokenizer=numbered_pieces(*models, ids[0], ids[1], source_eos=data.source_end),
            languages=_languages(source_start=data.source_start),
            samples=(),
            metadata={},
        )


def _latest(folder: Path) -> Path:
    """The checkpoint's files without their endings: the only ones, or those that the file ``checkpoint`` names."""
    found = sorted(path.name.removesuffix(".index") for path in folder.glob("*.index"))
    if len(found) == 1:
        return folder / found[0]
    state = folder / "checkpoint"
    named = _LATEST.search(read_text(state)) if state.is_file() else None
    if named is None or Path(named[1]).name not in found:
        raise ExportError(f"checkpoint {folder}: it has {len(found)} .index files; leave the one to export")
    return folder / Path(named[1]).name


def _oriented(name: str, tensor: Tensor) -> Tensor:
    """The weight of a projection as [out, in], and vectors for distances as [1, 2·window + 1, D]."""
    if name.endswith(f"/kernel{_SUFFIX}") and tensor.ndim == 2:
        return tensor.t().contiguous()
    return tensor[None] if "/relative_position_" in name else tensor


def _fields(tensors: Mapping[str, Tensor], description: Description, path: Path) -> dict[str, Any]:
    """Those of `TransformerConfig`."""
    source = find_table(tensors, _SOURCE, path)
    target = find_table(tensors, _TARGET if _TARGET in tensors else _SOURCE, path)
    width = source.shape[-1]
    if description.heads < 1 or width % description.heads:
        raise ExportError(
            f"{path.with_name(DESCRIPTION)}: it has {description.heads} heads, which do not divide the model's size of"
            f" {width}"
        )
    fields: dict[str, Any] = {
        "source_vocab_size": len(source),
        "target_vocab_size": len(target),
        "d_model": width,
        "encoder_layers": _layers(tensors, "encoder"),
        "decoder_layers": _layers(tensors, "decoder"),
        "heads": description.heads,
        "ffn_size": len(find_table(tensors, "model/encoder/layers/0/ffn/layer/inner/kernel", path)),
        "activation": description.activation,
        "norm": "pre" if "model/encoder/layer_norm/gamma" in tensors else "post",
        "layer_norm_eps": _EPSILON,
        "pad_id": PAD,
        "unk_id": UNK,
        "bos_id": START,
        "eos_id": END,
        "decoder_start_id": START,
    }
    if _KEYS.format("encoder") in tensors:
        places = tensors[_KEYS.format("encoder")].shape[1]
        return fields | {"positions": "none", "relative_window": places // 2, "max_positions": _MOST_POSITIONS}
    stored = [tensors[name] for name in map(_TABLE.format, POSITIONS) if name in tensors]
    positions = min((len(find_table({"": table}, "", path)) - 1 for table in stored), default=_MOST_POSITIONS)
    return fields | {"positions": "learned", "max_positions": positions}


def _layers(tensors: Mapping[str, Tensor], side: str) -> int:
    found = (re.match(rf"model/{side}/layers/(\d{{1,9}})/", name) for name in tensors)
    return max((int(match[1]) + 1 for match in found if match), default=0)


def _reorder(tensors: dict[str, Tensor], source: NumberedWords, target: NumberedWords, path: Path) -> None:
    """Give the rows of embeddings and output the ids of `NumberedWords`, on both sides the same for special words."""
    if _TARGET not in tensors and source.words != target.words:
        raise ExportError(f"{path}: the sides share their embeddings, and their vocabularies differ")
    outputs = (f"{_OUTPUT}/kernel", f"{_OUTPUT}/bias")
    for words, names in ((source, (_SOURCE,)), (target, (_TARGET, *outputs))):
        for name in names:
            if name not in tensors:
                continue
            if not tensors[name].ndim or len(tensors[name]) != len(words.words):
                shape = list(tensors[name].shape)
                raise ExportError(
                    f"{path}: the tensor {name} is {shape}, and its vocabulary has {len(words.words):,} words with"
                    " <unk>"
                )
            tensors[name] = words.reorder(tensors[name])


def _tables(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Makes the positions of sinusoids, from 1; none where positions are stored or relative."""
    stored = any(_TABLE.format(side) in tensors for side in POSITIONS)
    if fields["positions"] == "none" or stored:
        return {}
    table = partial(sinusoids, 1, fields["max_positions"], fields["d_model"])
    return dict.fromkeys(POSITIONS.values(), table)


def _languages(*, source_start: bool) -> Languages:
    undetermined = (UNDETERMINED,)
    if not source_start:
        return Languages(source=undetermined, target=undetermined)
    templates = LanguageTemplates(source={UNDETERMINED: LanguageTokens(source_prefix=(START,))})
    return Languages(source=undetermined, target=undetermined, templates=templates)


def _names(*, pre_norm: bool) -> dict[str, str | tuple[str, ...]]:
    """Our parameters to theirs."""
    names: dict[str, str | tuple[str, ...]] = {
        "encoder.embedding.tokens.weight": _SOURCE,
        "decoder.embedding.tokens.weight": (_TARGET, _SOURCE),
        "output_projection.weight": (f"{_OUTPUT}/kernel", _TARGET, _SOURCE),
        "output_projection.bias": f"{_OUTPUT}/bias",
    }

    def norm(ours: str, theirs: str) -> None:
        names[f"{ours}.weight"], names[f"{ours}.bias"] = f"{theirs}/gamma", f"{theirs}/beta"

    def linear(ours: str, theirs: str) -> None:
        names[f"{ours}.weight"], names[f"{ours}.bias"] = f"{theirs}/kernel", f"{theirs}/bias"

    wrapped = "input_layer_norm" if pre_norm else "output_layer_norm"
    for side, parts in (
        ("encoder", {"self_attention": "self_attention"}),
        ("decoder", {"self_attention": "self_attention", "cross_attention": "attention/0"}),
    ):
        ours, theirs = f"{side}.layers.*", f"model/{side}/layers/*"
        norm(f"{side}.final_norm", f"model/{side}/layer_norm")
        names[POSITIONS[side]] = _TABLE.format(side)
        norm(f"{ours}.feed_forward_residual.norm", f"{theirs}/ffn/{wrapped}")
        linear(f"{ours}.feed_forward.up_proj", f"{theirs}/ffn/layer/inner")
        linear(f"{ours}.feed_forward.down_proj", f"{theirs}/ffn/layer/outer")
        for attention, other in parts.items():
            norm(f"{ours}.{attention}_residual.norm", f"{theirs}/{other}/{wrapped}")
            for one, another in _PROJECTIONS:
                linear(f"{ours}.{attention}.{one}", f"{theirs}/{other}/layer/{another}")
        for kind in ("keys", "values"):
            table = f"{ours}.self_attention.relative.{kind}"
            names[table] = f"{theirs}/self_attention/layer/relative_position_{kind}"
    return names
