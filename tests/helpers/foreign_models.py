"""Hugging Face folders with random weights and tokenizers, and the bundles that are exported from them."""

import dataclasses
from pathlib import Path
from typing import Any

import transformers

from helpers import foreign_folders, hugging_face
from helpers.store import stored
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.settings import ExportSettings
from translane_export.sources import language_codes
from translane_server.bundle.bundle import Bundle, load_bundle

POSITIONS = 128
PREFIX = "translate English to {}: "

# All layers are alike, and an export takes longer with each. BART with one says too little to learn from.
_ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
_ONE_LAYER_OF_T5 = {"num_layers": 1, "num_decoder_layers": 1}

_NAMES = {"de": "German", "fr": "French"}
_TASKS = {f"translation_en_to_{code}": {"prefix": PREFIX.format(name)} for code, name in _NAMES.items()}


@dataclasses.dataclass(frozen=True)
class ForeignModel:
    """A model to draw, and its tokenizer.

    Attributes:
        spread: see `hugging_face.Model`. It is so large that texts differ, and so small that an export passes.
    """

    name: str  # name of the model in `hugging_face.MODELS`
    kind: str  # name of the tokenizer's function in `foreign_folders`
    source: str = ""  # the model's code of the source language
    target: str = ""  # the model's code of the target language
    fast: bool = False  # whether the folder has a tokenizer.json besides SentencePiece's file
    spread: float = 0.4
    ends: float = 4.0  # see `hugging_face.Model`
    config: dict[str, Any] = dataclasses.field(default_factory=dict)  # further entries of config.json
    generation: dict[str, Any] = dataclasses.field(default_factory=dict)  # further entries of generation_config.json


FOREIGN_MODELS = {
    "Marian": ForeignModel("Marian", "marian", spread=0.25, ends=1.0),
    "M2M100": ForeignModel("M2M100, NLLB-200", "m2m100", "en", "fr", config={"vocab_size": 1000}),
    "NLLB-200": ForeignModel("M2M100, NLLB-200", "nllb", "eng_Latn", "fra_Latn", fast=True),
    "mBART-50": ForeignModel("mBART-50", "mbart50", "en_XX", "fr_XX", fast=True),
    "BART": ForeignModel(
        "BART",
        "bart",
        spread=0.25,
        config={"forced_bos_token_id": 0, "bos_token_id": 0, "encoder_layers": 2, "decoder_layers": 3},
    ),
    "T5": ForeignModel("T5", "t5", "en", "fr", fast=True, spread=0.1, config={"task_specific_params": _TASKS}),
}


@dataclasses.dataclass
class Exported:
    """A model and its tokenizer from transformers, and the bundle that is exported from their folder."""

    model: Any
    tokenizer: Any
    bundle: Bundle


def export(foreign: ForeignModel) -> Exported:
    """Draw a model, write it with its tokenizer, and export the folder: once for a test session."""
    folder = _stored(foreign)
    return Exported(
        hugging_face.MODELS[foreign.name].model_class.from_pretrained(folder / foreign.kind),
        _tokenizer(foreign, folder / foreign.kind),
        load_bundle(folder / "bundle"),
    )


def hugging_face_folder(foreign: ForeignModel) -> Path:
    """Return the folder that transformers wrote of a drawn model. It must not be written to."""
    return _stored(foreign) / foreign.kind


def _stored(foreign: ForeignModel) -> Path:
    return stored(foreign, lambda folder: _write(foreign, folder))


def _write(foreign: ForeignModel, scratch: Path) -> None:
    folder = scratch / foreign.kind
    folder.mkdir(parents=True)
    getattr(foreign_folders, foreign.kind)(folder)
    drawn = hugging_face.MODELS[foreign.name]
    (folder / "config.json").write_text(f'{{"model_type": "{drawn.config_class.model_type}"}}')
    tokenizer = _tokenizer(foreign, folder)
    if foreign.fast:
        tokenizer.save_pretrained(folder)
        tokenizer = _tokenizer(foreign, folder)
    sizes = {"vocab_size": len(tokenizer) + (foreign.kind != "marian") * 8}
    sizes |= _ONE_LAYER_OF_T5 if foreign.kind == "t5" else _ONE_LAYER
    config = {**drawn.config, **sizes, **foreign.config}
    # transformers writes <unk> for ids without a piece, and the server writes nothing
    names = tokenizer.convert_ids_to_tokens(range(config.get("decoder_vocab_size", config["vocab_size"])))
    never = {id_ for id_, name in enumerate(names) if name in (None, tokenizer.unk_token)}
    never.update(drawn.generation.get("suppress_tokens", []))
    generation = {**drawn.generation, **foreign.generation, "suppress_tokens": sorted(never)}
    if foreign.kind == "marian":  # the ids of MODELS belong to another vocabulary
        config["pad_token_id"] = config["decoder_start_token_id"] = tokenizer.pad_token_id
        generation["bad_words_ids"] = [[tokenizer.pad_token_id]]
    if foreign.kind != "t5":
        config["max_position_embeddings"] = POSITIONS
    model = dataclasses.replace(
        drawn, config=config, generation=generation, forced_bos=None, ends=foreign.ends, spread=foreign.spread
    )
    hugging_face.draw(model).save_pretrained(folder)
    export_checkpoint(ExportSettings(checkpoint=folder, output=scratch / "bundle", threads=1))


def _tokenizer(foreign: ForeignModel, folder: Path) -> Any:
    special = {"extra_special_tokens": list(language_codes.NLLB200)} if foreign.kind == "nllb" else {}
    return transformers.AutoTokenizer.from_pretrained(folder, **special)
