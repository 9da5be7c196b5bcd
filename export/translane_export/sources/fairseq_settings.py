"""The settings in a checkpoint of fairseq, whichever release saved them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from translane_export.errors import ExportError
from translane_export.sources.inert_pickle import plain
from translane_export.sources.model_settings import ModelSettings
from translane_server.core.terminal import shown

_TASK = "translation"
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


def fairseq_settings(content: Mapping[str, Any], path: Path) -> ModelSettings:
    """The model's settings and the task's, flat: "encoder_layers" whether saved so or as encoder.layers.

    Raises:
        ExportError: there are none, or the model is of a kind that is not supported.
    """
    try:
        values, groups = plain(content.get("args")), plain(content.get("cfg"))
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None
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
    settings = ModelSettings({path: flat})
    if (task := settings.get("task", _TASK)) != _TASK:
        raise ExportError(f"{path}: its task is {shown(task)}, and only {_TASK} is supported")
    settings.refuse(_UNSUPPORTED)
    return settings
