"""Compares requests without options with Hugging Face's `generate` without arguments.

Folders get random generation_config.json files. The exporter reads such a file, the server's reader makes sentences of
requests that set nothing, and the running batch decodes them.
"""

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from helpers import hugging_face
from helpers.driver import BundleDecoder
from helpers.real_server import AS_THEY_ARE
from translane.options import checked_options
from translane.requests import TranslationRequest
from translane_export.sources.huggingface import (
    CONFIG,
    GENERATION_CONFIG,
    generation_settings,
    read_lengths,
    read_search,
    read_settings,
)
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import DecodingDefaults, LanguageTemplates, LanguageTokens, Manifest
from translane_server.settings.server_settings import ServerSettings
from translane_server.translation.limits import limits_of
from translane_server.translation.reader import TranslateReader

NAMES = ("Marian", "BART", "T5", "M2M100, NLLB-200", "mBART-50")
RENORMALIZED = ("Marian", "BART")  # their files ban an id
ROWS = 48

_SETTINGS = {"model": "unused", "max_batch_size": ROWS}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def random_file(pick: random.Random, *, renormalize: bool) -> dict[str, Any]:
    """Draw what a generation_config.json says of the search. Where probabilities are shared anew, no rule is drawn."""
    drawn: dict[str, Any] = {}
    if pick.random() < 0.8:
        drawn["num_beams"] = pick.randint(1, 6)
    if pick.random() < 0.6:
        drawn["length_penalty"] = pick.randint(-10, 20) / 10
    if pick.random() < 0.6:
        choices = [True, False, "never"] if drawn.get("length_penalty", 1.0) <= 0 else [True, False]
        drawn["early_stopping"] = pick.choice(choices)
    name, longest = pick.choice([("max_length", pick.randint(3, 30)), ("max_new_tokens", pick.randint(2, 30))])
    drawn[name] = longest
    if renormalize:
        return drawn
    if pick.random() < 0.4:
        drawn["no_repeat_ngram_size"] = pick.randint(0, 4)
    if pick.random() < 0.4:
        drawn["repetition_penalty"] = pick.randint(8, 20) / 10
    if pick.random() < 0.4:
        drawn[pick.choice(["min_length", "min_new_tokens"])] = pick.randint(0, longest - 1)
    return drawn


def compare(
    name: str, files: int, sentences: int, *, renormalize: bool = False, seed: int = 0
) -> hugging_face.Comparison:
    """Compare `sentences` under each of `files` random files of one of `hugging_face.MODELS`."""
    generation = {"renormalize_logits": True} if renormalize else {}
    model, bundle = hugging_face.export_drawn(name, seed=1, generation=generation)
    folder = bundle.folder.parent / "model"
    own = {name: value for name, value in model.generation_config.to_dict().items() if value is not None}
    pick, found = random.Random(seed), hugging_face.Comparison()
    with BundleDecoder(bundle, rows=ROWS) as driver, tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / CONFIG).write_bytes((folder / CONFIG).read_bytes())
        for _ in range(files):
            drawn = random_file(pick, renormalize=renormalize)
            (Path(scratch) / GENERATION_CONFIG).write_text(json.dumps({**own, **drawn}))
            model.generation_config = GenerationConfig.from_pretrained(scratch)
            texts = ["".join(pick.choices(_LETTERS, k=pick.randint(1, 16))) for _ in range(sentences)]
            _compare(model, bundle, Path(scratch), driver, texts, found)
    return found


def _compare(
    model: Any,
    bundle: Bundle,
    folder: Path,
    driver: BundleDecoder,
    texts: list[str],
    found: hugging_face.Comparison,
) -> None:
    manifest = _manifest_of(bundle.manifest, folder, model.generation_config.forced_bos_token_id)
    reader = TranslateReader(
        manifest, driver.tokenizer, limits_of(ServerSettings.model_validate(_SETTINGS).of_model("m"), manifest)
    )
    sentences = reader.read(TranslationRequest(texts, options=checked_options(AS_THEY_ARE))).sentences
    sources = [sentence.source_ids for sentence in sentences]
    wanted = hugging_face.run_generate(model, sources, model.generation_config.num_beams or 1)
    said = (folder / GENERATION_CONFIG).read_text()
    for text, (ours, *_), theirs in zip(texts, driver.together(sentences), wanted, strict=True):
        found.add(f"{text} under {said}", ours, theirs)


def _manifest_of(manifest: Manifest, folder: Path, forced: int | None) -> Manifest:
    """Return the manifest with the decoding defaults that an export of `folder` would write."""
    settings = read_settings(folder)
    search = read_search(generation_settings(settings))
    assert not search.left_out
    longest = read_lengths(settings)["default_max_length"]
    defaults = DecodingDefaults(max_length=longest, **search.defaults.model_dump(exclude_none=True))
    target = {} if forced is None else {manifest.target_languages[0]: LanguageTokens(forced=(forced,))}
    return manifest.model_copy(
        update={"decoding_defaults": defaults, "language_templates": LanguageTemplates(target=target)}
    )
