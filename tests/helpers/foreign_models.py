"""Hugging Face folders of random weights with their tokenizers, and the bundles they are exported as."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers import foreign_folders, hugging_face
from translane_export.bundle_writer import export_checkpoint
from translane_export.settings import ExportSettings
from translane_server.bundle import Bundle, load_bundle

POSITIONS = 128


@dataclasses.dataclass
class ForeignModel:
    """A model and its tokenizer, as transformers has them, and the bundle that was made of their folder."""

    model: Any
    tokenizer: Any
    bundle: Bundle


def make(
    name: str,
    kind: str,
    folder: Path,
    *,
    fast: bool = False,
    ends: float = 4.0,
    spread: float = 0.1,
    special: Sequence[str] = (),
    **config: Any,
) -> ForeignModel:
    """Draw the model `name` of `hugging_face.MODELS` with the tokenizer `kind` of `foreign_folders`, and export it.

    Args:
        name: see above.
        kind: see above.
        folder: to write it to; the bundle's is beside it.
        fast: whether the folder has a tokenizer.json besides.
        ends: see `hugging_face.Model`.
        spread: see there.
        special: tokens that transformers has to be told of.
        config: what else config.json says.
    """
    folder.mkdir()
    getattr(foreign_folders, kind)(folder)
    drawn = hugging_face.MODELS[name]
    (folder / "config.json").write_text(f'{{"model_type": "{drawn.config_class.model_type}"}}')
    options = {"extra_special_tokens": list(special)} if special else {}
    tokenizer = hugging_face.transformers.AutoTokenizer.from_pretrained(folder, **options)
    if fast:
        tokenizer.save_pretrained(folder)
        tokenizer = hugging_face.transformers.AutoTokenizer.from_pretrained(folder, **options)
    never = {tokenizer.unk_token_id, *drawn.generation.get("suppress_tokens", [])}  # transformers does not write it
    generation: dict[str, Any] = {"suppress_tokens": sorted(never)}
    if kind == "marian":  # the ids of MODELS are of another vocabulary
        pad = tokenizer.pad_token_id
        config = {"pad_token_id": pad, "decoder_start_token_id": pad, **config}
        generation["bad_words_ids"] = [[pad]]
    config.setdefault("vocab_size", len(tokenizer) + (kind != "marian") * 8)
    if kind != "t5":
        config["max_position_embeddings"] = POSITIONS
    drawn = dataclasses.replace(
        drawn,
        config={**drawn.config, **config},
        generation={**drawn.generation, **generation},
        forced_bos=None,
        ends=ends,
        spread=spread,
    )
    model = hugging_face.draw(drawn)
    model.save_pretrained(folder)
    output = folder.with_name(f"{folder.name}-bundle")
    export_checkpoint(ExportSettings(checkpoint=folder, output=output, threads=1))
    return ForeignModel(model, tokenizer, load_bundle(output))
