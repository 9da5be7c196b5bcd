"""Bundle and text to a folder: translate, profile, record. The folder appears when all of it is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from translane_export.checks.running import Log
from translane_export.core.errors import ExportError
from translane_export.core.output_folder import check_replaceable, staged
from translane_export.core.settings import ExplainSettings
from translane_export.core.torch_model import build_model, release_memory
from translane_export.explain.operators import profile_graphs
from translane_export.explain.page import make_page
from translane_export.explain.report import Findings, as_json, as_text
from translane_export.explain.tensors import check_size, follow_token, position_tables, record_translation
from translane_export.explain.translation import SourceText, read_source, text_steps, translate
from translane_export.sources.readers import find_reader
from translane_server.bundle.bundle import MANIFEST, Bundle
from translane_server.bundle.devices import choose_bundle
from translane_server.text.tokenizer import load_tokenizer

DESCRIPTION = "explain.json"
PAGE = "index.html"

_SCHEMA_VERSION = 1
_TORCHSCRIPT = "torchscript.json"


def explain(settings: ExplainSettings, log: Log = lambda _line: None) -> str:
    """Write the page of a sentence, and return what to print.

    Raises:
        SettingsError: a setting does not fit the bundle, or the text is too long.
        StartupError: the bundle does not load.
        ExportError: the output folder is in the way, or the bundle cannot be looked into.
    """
    check_replaceable(settings.output, force=settings.force, markers=(DESCRIPTION,), what="an output of explain")
    bundle = _open(settings.bundle)
    source = read_source(
        bundle,
        load_tokenizer(bundle),
        settings.text,
        source_language=settings.source_language,
        target_language=settings.target_language,
    )
    findings = look(bundle, source, settings, log)
    _write(settings.output, make_page(findings), as_json(findings))
    return f"{as_text(findings)}\n{settings.output}: {PAGE}"


def _open(folder: Path) -> Bundle:
    """Load the bundle in `folder`; of several precisions, the one that a server without a GPU takes."""
    if (folder / _TORCHSCRIPT).is_file() and not (folder / MANIFEST).exists():
        raise ExportError(f"model bundle {folder}: it holds TorchScript files; export the checkpoint as ONNX graphs")
    return choose_bundle(folder, "cpu")[0]


def look(bundle: Bundle, source: SourceText, settings: ExplainSettings, log: Log = lambda _line: None) -> Findings:
    """Find out everything. ONNX Runtime lets go of the weights before PyTorch takes them."""
    threads = settings.computing_threads
    log("translating with the graphs")
    translated = translate(bundle, source, threads, beam_size=settings.beam_size, max_length=settings.max_length)
    sizes = bundle.manifest.architecture
    check_size(sizes, len(source.ids), len(translated.fed_ids))
    log("timing the graphs")
    graphs = profile_graphs(bundle, translated, threads)
    release_memory()
    log("running the model in PyTorch")
    torch.set_num_threads(threads)
    model = build_model(find_reader(bundle.folder).read(bundle.folder))
    step = len(translated.fed_ids) // 2  # the middle one has tokens before it
    return Findings(
        manifest=bundle.manifest,
        translated=translated,
        attention=record_translation(model, translated),
        tables=position_tables(model),
        graphs=graphs,
        text_steps=text_steps(bundle, source),
        way=follow_token(model, source.ids, translated.fed_ids[: step + 1]),
        step=step,
    )


def _write(output: Path, page: str, content: Mapping[str, object]) -> None:
    """Write the page, and what `check_replaceable` knows an earlier output by."""
    described = {"schema_version": _SCHEMA_VERSION, "files": {PAGE: {}}, **content}
    with staged(output) as folder:
        (folder / PAGE).write_text(page, encoding="utf-8")
        (folder / DESCRIPTION).write_text(json.dumps(described, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
