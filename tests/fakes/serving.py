"""A server over the fake backend: it translates every text to itself, character by character."""

from __future__ import annotations

from contextlib import asynccontextmanager

import grpc

from fakes.backend import DECODER_START, EOS, OFFSET, FakeBackend
from translane.v1 import translation_pb2_grpc
from translane_server.bundle import Manifest
from translane_server.config import ServerSettings
from translane_server.engine import Engine
from translane_server.server import Server
from translane_server.service import ServedModel

FIRST_CHARACTER = 10


class FakeTokenizer:
    """A token for each character; blank texts have none."""

    def encode(self, texts):
        return [[*(ord(c) + FIRST_CHARACTER for c in text), EOS] if text.strip() else [] for text in texts]

    def decode(self, ids):
        return ["".join(chr(i - OFFSET - FIRST_CHARACTER) for i in sentence) for sentence in ids]


def make_manifest(**changes):
    files = ("encoder.onnx", "decoder.onnx", "source.spm", "target.spm")
    graph = {"inputs": [], "outputs": []}
    values = {
        "schema_version": 1,
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
            "target_vocab_size": 100,
            "parameters": 12345,
        },
        "precision": "fp32",
        "weight_storage": "float32",
        "special_ids": {"pad": 0, "unk": 1, "bos": 2, "eos": EOS, "decoder_start": DECODER_START},
        "limits": {"source_tokens": 32, "target_tokens": 24},
        "decoding_defaults": {"max_length": 20},
        "tokenizer": {"kind": "sentencepiece", "source": "source.spm", "target": "target.spm"},
        "graphs": {"encoder": {"file": "encoder.onnx", **graph}, "decoder": {"file": "decoder.onnx", **graph}},
        "license": "CC-BY-4.0",
        "provenance": {},
        "parity": None,
        "files": {name: {"size": 0, "sha256": "0" * 64} for name in files},
    }
    return Manifest.model_validate(values | changes)


def make_model(**changes):
    return ServedModel(make_manifest(**changes), FakeTokenizer(), "cpu")


def make_engine(backend, metrics, waiting_limit=64):
    return Engine(
        backend,
        decoder_start=DECODER_START,
        eos=EOS,
        waiting_limit=waiting_limit,
        encode_tokens=256,
        observer=metrics,
    )


def make_settings(**changes):
    ours = {"model": "unused", "port": 0, "metrics_port": 0, "texts_per_request": 8, "sentences_waiting": 64}
    return ServerSettings(**(ours | changes))


class Running:
    """A started server, its backend, and a client to it."""

    def __init__(self, server, backend, channel):
        self.server = server
        self.backend = backend
        self.channel = channel
        self.stub = translation_pb2_grpc.TranslationServiceStub(channel)

    async def open(self):
        limit = self.server.limits.sentences_waiting
        await self.server.open(lambda metrics: make_engine(self.backend, metrics, limit))


@asynccontextmanager
async def serving(*, opened=True, rows=4, model=None, **settings):
    server = Server(make_settings(**settings), model or make_model())
    backend = FakeBackend(rows=rows)
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
