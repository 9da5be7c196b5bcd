"""A server over the fake backend. It translates every text to itself, character by character."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
import msgspec

from fakes.backend import DECODER_START, EOS, OFFSET, VOCAB_SIZE, FakeBackend
from fakes.replicas import fake_replica
from helpers import real_server
from translane_server.app.server import Server
from translane_server.bundle.manifest import Manifest
from translane_server.engine.sequence import TargetVocabulary
from translane_server.models.glossary_folder import GlossaryFolder
from translane_server.models.loader import CheckedModel, ModelDescription, ModelLoader, translation_cache
from translane_server.models.registry import Registry
from translane_server.models.served_model import LoadedModel, ServedModel
from translane_server.observation.metrics import Metrics, ModelMetrics
from translane_server.observation.tracing import Tracer
from translane_server.runtime.backend import Backend
from translane_server.settings.server_settings import ServerSettings
from translane_server.text.placeholders import Span
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.cache import TranslationCache
from translane_server.translation.limits import RequestLimits, limits_of
from translane_server.workers.dispatcher import Dispatcher

UNKNOWN = 1 + OFFSET
# The characters of the fake vocabulary; all others are unknown.
ALPHABET = [*map(chr, range(256)), *"日本語と汉字北京爱我们是大学👩👧👦🏳🌈\u200d\ufe0f\u202e\u0301\U0010ffff"]


class FakeTokenizer(Tokenizer):
    """Makes one token of each character, and no tokens of a blank text. A target id is the source id + OFFSET."""

    def __init__(self) -> None:
        self._ids = {character: number for number, character in enumerate(ALPHABET, start=10)}
        self._characters = {number + OFFSET: character for character, number in self._ids.items()}
        self._characters[UNKNOWN] = "\u2047"

    @property
    def target_surfaces(self) -> list[bytes]:
        return [self._characters.get(token, "").encode() for token in range(VOCAB_SIZE)]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*(self._ids.get(c, 1) for c in text), EOS] if text.strip() else [] for text in texts]

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(c, 1) + OFFSET for c in text.strip()] for text in texts]

    def decode(self, ids: Sequence[Sequence[int]], replaced: Sequence[Mapping[int, str]] = ()) -> list[str]:
        return [
            "".join(changes.get(place, self._characters[token]) for place, token in enumerate(sentence))
            for sentence, changes in zip(ids, replaced or [{}] * len(ids), strict=True)
        ]

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        return ["</s>" if token == EOS else self._characters[token + OFFSET] for token in ids]

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        return ["</s>" if token == EOS else self._characters[token] for token in ids]

    def source_spans(self, text: str) -> list[Span | None]:
        return [*pairwise(range(len(text) + 1)), None] if text.strip() else []


def make_manifest(**changes: Any) -> Manifest:
    files = ("encoder.onnx", "decoder.onnx", "alignment.onnx", "source.spm", "target.spm")
    graph = {"inputs": [], "outputs": [{"name": "cross_key_0", "dtype": "float32", "shape": []}]}
    values = {
        "name": "fake",
        "version": "2.1",
        "source_languages": ["zh"],
        "target_languages": ["en"],
        "architecture": {
            "family": "transformer",
            "encoder_layers": 1,
            "decoder_layers": 1,
            "d_model": 8,
            "heads": 1,
            "head_size": 8,
            "ffn_size": 8,
            "source_vocab_size": 100,
            "target_vocab_size": VOCAB_SIZE,
            "parameters": 12345,
        },
        "precision": "fp32",
        "weight_storage": "float32",
        "special_ids": {"pad": 0, "unk": UNKNOWN, "bos": 2, "eos": EOS, "decoder_start": DECODER_START},
        "limits": {"source_tokens": 32, "target_tokens": 24},
        "decoding_defaults": {"max_length": 20},
        "tokenizer": {"kind": "sentencepiece", "source": "source.spm", "target": "target.spm"},
        "graphs": {name: {"file": f"{name}.onnx", **graph} for name in ("encoder", "decoder", "alignment")},
        "alignment": {"layer": 0, "heads": [0]},
        "license": "CC-BY-4.0",
        "provenance": {"checkpoint": "best", "attribution": "", "training": {}, "model": {}, "exporter": {}},
        "parity": None,
        "files": {name: {"size": 0, "sha256": "0" * 64} for name in files},
    }
    return msgspec.convert(values | changes, Manifest)


class FakeModel(NamedTuple):
    """A model to serve: its manifest and its tokenizer."""

    manifest: Manifest
    tokenizer: Tokenizer = FakeTokenizer()


def make_model(**changes: Any) -> FakeModel:
    return FakeModel(make_manifest(**changes))


def make_dispatcher(backend: Backend, metrics: ModelMetrics, waiting_limit: int = 64) -> Dispatcher:
    vocabulary = TargetVocabulary(DECODER_START, EOS, FakeTokenizer().target_surfaces)
    return Dispatcher([fake_replica(backend, vocabulary)], waiting_limit=waiting_limit, observe=metrics.observe)


def checked_model(model: FakeModel, limits: RequestLimits, name: str = "") -> CheckedModel:
    manifest, tokenizer = model
    description = ModelDescription(name or manifest.name, manifest.version, "0123456789ab", manifest, "cpu", limits)
    return CheckedModel(description, cast("Any", None), tokenizer, manifest.version)


class FakeLoader(ModelLoader):
    """Loads one version, which decodes with the dispatcher that `make` returns."""

    def __init__(self, make: Callable[[], LoadedModel]) -> None:
        self._make = make

    async def load(
        self, running: LoadedModel | None = None, version: str | None = None, before: ModelDescription | None = None
    ) -> LoadedModel | None:
        if running:
            return None
        loaded = self._make()
        await loaded.dispatcher.start()
        return loaded


def make_registry(
    model: FakeModel,
    limits: RequestLimits,
    metrics: Metrics,
    make: Callable[[ModelMetrics], Dispatcher],
    *,
    idle_timeout: float = 0,
    most_texts: int = sys.maxsize,
    glossaries: GlossaryFolder | None = None,
    cache: Callable[[ModelMetrics], TranslationCache | None] = lambda _metrics: None,
) -> Registry:
    """Return a registry of one model, which is not loaded."""
    glossaries = glossaries or GlossaryFolder()
    name = model.manifest.name
    of_model = metrics.of_model(name)

    def loaded() -> LoadedModel:
        return LoadedModel(
            checked_model(model, limits),
            make(of_model),
            of_model,
            registry.pool,
            stored=lambda: glossaries.current,
            cache=cache(of_model),
        )

    served = ServedModel(checked_model(model, limits).description, FakeLoader(loaded), of_model)
    registry = Registry(
        lambda: {name: Path()},
        lambda _name, _folder: served,
        most_texts=most_texts,
        idle_timeout=idle_timeout,
        glossaries=glossaries,
    )
    registry.add(served)
    return registry


def make_settings(**changes: Any) -> ServerSettings:
    ours = {"model": "unused", "port": 0, "metrics_port": 0, "max_request_texts": 8, "max_queue_size": 64}
    return ServerSettings.model_validate(ours | changes)


class Running(real_server.Running):
    """A started server, its backend, and a client to it."""

    def __init__(self, server: Server, backend: FakeBackend, channel: grpc.aio.Channel) -> None:
        super().__init__(server, channel)
        self.backend = backend

    @property
    def model(self) -> LoadedModel:
        (model,) = self.server.models.models.values()
        assert model.ready is not None
        return model.ready

    @property
    def dispatcher(self) -> Dispatcher:
        return self.model.dispatcher

    async def open(self) -> None:
        await self.server.open()


@asynccontextmanager
async def serving(
    *,
    opened: bool = True,
    rows: int = 4,
    model: FakeModel | None = None,
    tracer: Tracer | None = None,
    **changes: Any,
) -> AsyncIterator[Running]:
    settings = make_settings(**changes)
    model, metrics, backend = model or make_model(), Metrics(), FakeBackend(rows=rows)
    glossaries = GlossaryFolder(settings.glossaries, interval=0.01)
    glossaries.load()
    registry = make_registry(
        model,
        limits_of(settings.of_model("m"), model.manifest),
        metrics,
        lambda of_model: make_dispatcher(backend, of_model, settings.max_queue_size),
        most_texts=settings.max_request_texts,
        idle_timeout=settings.idle_timeout,
        glossaries=glossaries,
        cache=lambda of_model: translation_cache(settings.of_model("m"), of_model, lambda: glossaries.current),
    )
    server = Server(settings, registry, metrics, tracer)
    try:
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            running = Running(server, backend, channel)
            if opened:
                await running.open()
            yield running
    finally:
        if backend.gate:
            backend.release()
        if not server.stopped:
            await server.stop(grace=2)
