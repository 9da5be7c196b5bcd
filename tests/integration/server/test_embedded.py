"""A server within another program."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from translane.v1 import translation_pb2 as pb
from translane_client.aio import AsyncClient
from translane_server.app.embedded import EmbeddedServer
from translane_server.core.errors import StartupError
from translane_server.settings.model_sources import ModelPlace
from translane_server.settings.server_settings import ServerSettings

BUNDLE = Path(__file__).parents[3] / "models" / "zh-en"
TRANSLATE = "/translane.v1.TranslationService/Translate"
STREAM = "/translane.v1.TranslationService/TranslateStream"

pytestmark = pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree")


def settings(model: Path = BUNDLE, **changes: Any) -> ServerSettings:
    return ServerSettings(model=(ModelPlace(model),), replicas=1, threads=1, **changes)


async def test_it_translates_for_clients_and_for_forwarded_calls():
    embedded = await EmbeddedServer.start(settings())
    try:
        async with AsyncClient(embedded.address) as client:
            expected = (await client.translate("我有一只猫")).text
        metadata = embedded.metadata_for("ipv4:192.0.2.7:4321")
        request = pb.TranslateRequest(texts=["我有一只猫"]).SerializeToString()
        answer = await embedded.forwarder.unary(TRANSLATE, request, metadata, 30)
        assert pb.TranslateResponse.FromString(answer).translations[0].hypotheses[0].text == expected
        request = pb.TranslateStreamRequest(text="我有一只猫").SerializeToString()
        parts = [
            pb.TranslateStreamResponse.FromString(part).text_delta
            async for part in embedded.forwarder.stream(STREAM, request, metadata, 30)
        ]
        assert "".join(parts) == expected
        assert embedded.server.port == embedded.server.metrics_port == 0
    finally:
        assert await embedded.stop(5)
    assert not Path(embedded.address.removeprefix("unix:")).parent.exists()


async def test_callers_of_forwarded_calls_have_shares_of_their_own():
    embedded = await EmbeddedServer.start(settings(max_calls=2, caller_share=0.5))
    request = pb.TranslateRequest(texts=["我有一只猫"] * 64).SerializeToString()

    async def call(peer: str) -> grpc.StatusCode:
        try:
            await embedded.forwarder.unary(TRANSLATE, request, embedded.metadata_for(peer), 30)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    try:
        codes = await asyncio.gather(*(call(f"ipv4:192.0.2.7:{port}") for port in (1, 2)), call("ipv4:192.0.2.8:1"))
        assert sorted(codes[:2], key=lambda code: code.value) == [
            grpc.StatusCode.OK,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        ]
        assert codes[2] is grpc.StatusCode.OK
    finally:
        await embedded.stop(5)


def test_a_wrong_file_of_keys_is_told_and_leaves_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(StartupError, match="keys"):
        asyncio.run(EmbeddedServer.start(settings(keys_file=tmp_path / "keys.toml")))
    assert not list(tmp_path.iterdir())


def test_a_wrong_model_is_told_and_leaves_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(StartupError, match="manifest"):
        asyncio.run(EmbeddedServer.start(settings(tmp_path)))
    assert not list(tmp_path.iterdir())
