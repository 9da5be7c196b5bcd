"""Many models in one server, as a process: which one answers, and how each is replaced, unloaded and refused."""

import asyncio
import hashlib
import json
import re
import shutil
import signal
from contextlib import asynccontextmanager, contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.commands import serve
from helpers.failures import failed
from helpers.server_process import ServerProcess, running_server
from helpers.tiny_bundle import TINY, put_bundle
from translane.v1 import log_pb2, log_pb2_grpc, models_pb2, models_pb2_grpc, translation_pb2_grpc
from translane.v1 import translation_pb2 as pb
from translane_server.app.lifetime import changed as shown
from translane_server.settings.model_sources import read_places
from translane_server.settings.server_settings import ServerSettings

pytestmark = pytest.mark.slow

SERVICE = "translane.v1.TranslationService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
PATIENCE = 60  # seconds, on a busy machine
CALLERS = 4


class Running:
    """A server in a process, and clients to its ports."""

    def __init__(self, server: ServerProcess, channel: grpc.aio.Channel, admin: grpc.aio.Channel) -> None:
        self.server = server
        self.channel = channel
        self.admin = admin
        self.wait_for = server.wait_for

    @property
    def lines(self) -> list[str]:
        return self.server.lines

    async def translate(self, **fields: object) -> pb.TranslateResponse:
        stub = translation_pb2_grpc.TranslationServiceStub(self.channel)
        options = pb.DecodingOptions(max_length=8)
        request = pb.TranslateRequest(texts=["我有一只猫。"], options=options, **fields)  # type: ignore[arg-type]
        return await stub.Translate(request, timeout=PATIENCE, wait_for_ready=True)  # type: ignore[no-any-return]

    async def models(self) -> dict[str, pb.Model]:
        stub = translation_pb2_grpc.TranslationServiceStub(self.channel)
        return {model.name: model for model in (await stub.ListModels(pb.ListModelsRequest())).models}

    async def health(self, service: str) -> int:
        request = health_pb2.HealthCheckRequest(service=service)
        answer: health_pb2.HealthCheckResponse = await health_pb2_grpc.HealthStub(self.channel).Check(request)
        status: int = answer.status
        return status

    @property
    def operator(self) -> models_pb2_grpc.ModelServiceStub:
        return models_pb2_grpc.ModelServiceStub(self.admin)

    def reload(self) -> None:
        """Send SIGHUP, and wait for the end of the reload."""
        reloads = sum("reloaded: " in line for line in self.lines)
        self.server.signal(signal.SIGHUP)
        self.wait_for("reloaded: ", reloads + 1)


@contextmanager
def served(log, *flags):
    with running_server(log, *flags, "--admin-port=0", "--max-batch-size=8") as server:
        yield server
        assert server.terminate(PATIENCE) == 0, server.log
        assert "Traceback" not in server.log


@asynccontextmanager
async def connected(server):
    admin = server.wait_for(r"models are loaded and unloaded on (127\.0\.0\.1:\d+)")[1]
    async with grpc.aio.insecure_channel(server.address) as channel, grpc.aio.insecure_channel(admin) as of_admin:
        yield Running(server, channel, of_admin)


def library_in(folder):
    """A folder of two models: one in a folder of versions, one without."""
    put_bundle(folder / "zh-en" / "1", version="1")
    put_bundle(folder / "de-en", version="5", source_languages=["de"])
    return folder


@pytest.fixture
def serving(tmp_path):
    """A server of a test's own."""

    @asynccontextmanager
    async def serve(*flags: str):
        with served(tmp_path / "log", *flags) as server:
            async with connected(server) as running:
                yield running

    return serve


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return library_in(tmp_path_factory.mktemp("library") / "models")


@pytest.fixture(scope="module")
def shared(library, tmp_path_factory):
    """A server for several tests, which leave the library as it was."""
    folder = tmp_path_factory.mktemp("shared")
    settings = folder / "settings.toml"
    settings.write_text("[model_settings.de-en]\nmax_batch_size = 2\nreplicas = 1\n", encoding="utf-8")
    with served(folder / "log", f"--models={library}", f"--config={settings}") as server:
        server.wait_for("serving on cpu", 2)
        yield server


@pytest.fixture
async def running(shared):
    async with connected(shared) as running:
        yield running


async def test_each_model_has_a_version_settings_and_health_of_its_own(running):
    assert (await running.translate(model="de-en")).model == "de-en"
    assert (await running.translate(source_language="zh")).model == "zh-en"
    models = await running.models()
    assert [(model.version, model.state) for model in models.values()] == [
        ("5", pb.MODEL_STATE_READY),
        ("1", pb.MODEL_STATE_READY),
    ]
    running.wait_for("serving on cpu with 8 rows model=zh-en")
    running.wait_for("serving on cpu with 2 rows model=de-en")
    assert {name: model.max_beam_size for name, model in models.items()} == {"de-en": 2, "zh-en": 8}
    for name in ("", SERVICE, f"{SERVICE}/zh-en", f"{SERVICE}/de-en"):
        assert await running.health(name) == SERVING


async def test_a_bad_version_is_refused_and_the_old_one_goes_on(running, library):
    unfinished = put_bundle(library / "zh-en" / "2", version="2")
    with (unfinished / "weights.bin").open("r+b") as weights:
        weights.truncate(1000)
    running.reload()
    assert sum("a new version is refused, and version 1@" in line for line in running.lines) == 1
    failure = await failed(running.operator.ReloadModel(models_pb2.ReloadModelRequest(name="zh-en")))
    assert failure.name == "FAILED_PRECONDITION(MODEL_REFUSED)"
    assert "weights.bin is not the file that was exported" in failure.message
    # Its files are whole, but the graphs do not fit: only a replica notices.
    manifest = json.loads((TINY / "manifest.json").read_text(encoding="utf-8"))
    architecture = manifest["architecture"] | {"decoder_layers": manifest["architecture"]["decoder_layers"] + 1}
    put_bundle(library / "zh-en" / "3", version="3", architecture=architecture)
    running.reload()
    assert (await running.models())["zh-en"].version == "1"
    assert (await running.translate(source_language="zh")).model == "zh-en"
    (unfinished / "manifest.json").unlink()  # as a copy looks before its manifest is there
    shutil.rmtree(library / "zh-en" / "3")
    running.reload()
    assert "reloaded: 0 changed" in running.lines[-1]
    shutil.rmtree(unfinished)


async def test_an_operator_goes_back_to_a_version(running, library):
    def reload(version=""):
        request = models_pb2.ReloadModelRequest(name="zh-en", version=version)
        return running.operator.ReloadModel(request, timeout=PATIENCE)

    async def answered_by():
        return (await running.translate(model="zh-en")).model_versions["zh-en"]

    put_bundle(library / "zh-en" / "2", version="1")  # nobody has changed what the manifest says
    running.reload()
    newest = (await running.models())["zh-en"]
    assert await answered_by() == f"2@{newest.digest}"
    manifest = (library / "zh-en" / "2" / "manifest.json").read_bytes()
    assert newest.digest == hashlib.sha256(manifest).hexdigest()[:12]
    assert (await reload("1")).changed
    assert (await answered_by()).startswith("1@")
    running.reload()
    assert (await answered_by()).startswith("1@"), "SIGHUP does not go back to the bad one"
    failure = await failed(reload("3"))
    assert failure.name == "FAILED_PRECONDITION(MODEL_REFUSED)"
    assert failure.message.endswith("there is no version '3'; there is 2, 1")
    assert not (await reload("1")).changed
    assert (await reload()).model.version == "2"
    await running.operator.UnloadModel(models_pb2.UnloadModelRequest(name="de-en"), timeout=PATIENCE)
    assert [await running.health(name) for name in (f"{SERVICE}/de-en", "")] == [NOT_SERVING, SERVING]
    request = models_pb2.ReloadModelRequest(name="de-en", version="5")
    assert (await failed(running.operator.ReloadModel(request))).reason == "MODEL_REFUSED"
    await running.operator.LoadModel(models_pb2.LoadModelRequest(name="de-en"), timeout=PATIENCE)
    shutil.rmtree(library / "zh-en" / "2")
    running.reload()
    assert (await answered_by()).startswith("1@")


async def test_the_settings_pin_a_version_and_refuse_what_may_be_a_mistake(serving, tmp_path):
    library = library_in(tmp_path / "models")
    settings = tmp_path / "settings.toml"
    settings.write_text('strict_reload = true\n[model_settings.zh-en]\nmodel_version = "1"\n', encoding="utf-8")
    put_bundle(library / "zh-en" / "2", version="2")
    async with serving(f"--models={library}", f"--config={settings}") as running:
        running.wait_for("serving on cpu", 2)
        assert (await running.models())["zh-en"].version == "1"
        (library / "de-en").rename(tmp_path / "old")
        put_bundle(library / "de-en", version="5", source_languages=["fr"])
        running.reload()
        running.wait_for(
            "a new version is refused, and version 5@.* goes on: version 5@.* does not translate from de any more and"
            " has other files than 5@.*, and --strict-reload is set model=de-en"
        )
        assert (await running.translate(source_language="de")).model == "de-en"
        assert (await running.models())["zh-en"].version == "1"
        await running.operator.UnloadModel(models_pb2.UnloadModelRequest(name="de-en"), timeout=PATIENCE)
        loading = running.operator.LoadModel(models_pb2.LoadModelRequest(name="de-en"), timeout=PATIENCE)
        assert (await failed(loading)).message.endswith("and --strict-reload is set")


async def test_the_log_says_how_the_server_runs_and_more_of_it_while_it_does(running, library):
    url = "https://me:s3cret@models.example/x?sig=s3cret@sha256:" + "0" * 64
    firefox = "https://user:s3cret@mirror:8443/list.json?key=s3cret"
    told = shown(ServerSettings(model=read_places(url), firefox_models=firefox))
    assert "s3cret" not in told["model"]
    assert told["firefox_models"] == "https://mirror:8443/list.json"
    (line,) = [line for line in running.lines if "INFO translane " in line]
    assert f"models={library} " in line
    assert "max_batch_size=8" in line
    assert "grace_period" not in line, "a default"
    log = log_pb2_grpc.LogServiceStub(running.admin)
    await running.translate(model="de-en")
    answer = await log.SetLogLevel(log_pb2.SetLogLevelRequest(level=log_pb2.LOG_LEVEL_DEBUG))
    assert answer.before == log_pb2.LOG_LEVEL_INFO
    assert not [line for line in running.lines if "peer=" in line]
    await running.translate(model="de-en")
    running.wait_for("method=Translate .*peer=")
    await log.SetLogLevel(log_pb2.SetLogLevelRequest(level=log_pb2.LOG_LEVEL_INFO))
    assert (await failed(log.SetLogLevel(log_pb2.SetLogLevelRequest()))).name == "INVALID_ARGUMENT(INVALID_FIELD)"


async def test_models_come_and_go(running, library):
    put_bundle(library / "fr-en", source_languages=["fr"])
    response = await running.operator.LoadModel(models_pb2.LoadModelRequest(name="fr-en"), timeout=PATIENCE)
    assert response.model.state == pb.MODEL_STATE_READY
    assert (await running.translate(source_language="fr")).model == "fr-en"
    shutil.rmtree(library / "de-en")
    put_bundle(library / "it-en", source_languages=["it"])
    running.reload()
    assert set(await running.models()) == {"zh-en", "fr-en", "it-en"}
    assert (await failed(running.translate(model="de-en"))).code is grpc.StatusCode.NOT_FOUND
    assert (await failed(running.health(f"{SERVICE}/de-en"))).code is grpc.StatusCode.NOT_FOUND
    for name in ("fr-en", "it-en"):
        shutil.rmtree(library / name)
    put_bundle(library / "de-en", version="5", source_languages=["de"])
    running.reload()


async def test_an_unused_model_is_unloaded_and_the_next_request_loads_it(serving, library):
    async with serving(f"--models={library}", "--idle-timeout=0.5") as running:
        running.wait_for("serving on cpu", 2)
        running.wait_for("unloaded model=zh-en")
        assert await running.health("") == SERVING
        calls = [running.translate(model="zh-en") for _ in range(CALLERS)]
        assert [response.model for response in await asyncio.gather(*calls)] == ["zh-en"] * CALLERS
        assert (await running.translate(model="de-en")).model == "de-en"


async def test_one_model_as_ever(serving, tmp_path):
    folder = put_bundle(tmp_path / "only", name="only")
    async with serving(str(folder)) as running:
        running.wait_for("serving on cpu with 8 rows model=only")
        assert (await running.translate()).model == "only"
        put_bundle(tmp_path / "next", name="only", version="next")
        folder.rename(tmp_path / "old")
        (tmp_path / "next").rename(folder)
        running.reload()
        assert (await running.models())["only"].version == "next"
        folder.rename(tmp_path / "next")
        put_bundle(folder, name="another")
        running.reload()
        running.wait_for("a new version is refused.*its name is another, and only is served")
        assert (await running.translate()).model == "only"


def test_what_is_wrong_at_the_start_is_a_sentence(library, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("translane_server.app.lifetime.configure_logging", lambda _format, _level: None)
    broken = put_bundle(tmp_path / "broken")
    (broken / "decoder.onnx").unlink()
    settings = tmp_path / "settings.toml"
    settings.write_text("[model_settings.fr-en]\nmax_batch_size = 4\n", encoding="utf-8")
    models = f"--models={library}"
    for argv, problem in (
        ([models, f"bad={broken}"], "model bad: model bundle .*decoder.onnx is missing"),
        ([models, "--model-version=1"], "there is no version '1', because the folder has no versions"),
        ([models, f"--config={settings}"], "model_settings.fr-en: there is no such model; there is de-en, zh-en"),
    ):
        assert serve(["--check", *argv], {}) in (1, 2)
        assert re.match(f"translane serve: .*{problem}", capsys.readouterr().err.splitlines()[-1])
