"""A real Prometheus scrapes real servers: each alert fires where it is provoked, and every query has data.

A minute of the rules passes in a second here; no threshold is changed.
"""

import asyncio
import contextlib
import itertools
import json
import math
import resource
import shutil
import signal
import urllib.request
from typing import Any

import grpc
import psutil
import pytest
import yaml

from helpers.key_files import holder, key_file
from helpers.prometheus import FOLDER, hasty_rules, queries, running_prometheus
from helpers.reliability.load import CHANNEL_OPTIONS
from helpers.reliability.versions import ModelFolder
from helpers.server_process import BUNDLE, ServerProcess, fake_model
from translane.v1 import models_pb2, models_pb2_grpc, translation_pb2_grpc
from translane.v1 import translation_pb2 as pb
from translane_server.access.keys import make_token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRAPE = 1.0  # [seconds]
HASTE = 60
LONGEST = 120.0  # until all alerts have fired [seconds]; it takes a quarter of this where the machine has nothing else

PATIENT = 60  # [seconds]


@pytest.fixture
def begin(tmp_path):
    """Starts a server; all are stopped at the end."""
    with contextlib.ExitStack() as servers:

        def begins(name, *flags, **arguments):
            server = ServerProcess(tmp_path / f"{name}.log", flags, **arguments)
            servers.callback(server.stop)
            return server

        yield begins


@pytest.fixture
def prometheus(tmp_path):
    folder = tmp_path / "prometheus"
    folder.mkdir()
    (folder / "rules.yaml").write_text(hasty_rules(FOLDER / "rules.yaml", HASTE), encoding="utf-8")
    with running_prometheus(folder, SCRAPE, folder / "rules.yaml") as running:
        yield running


@contextlib.asynccontextmanager
async def stub_of(server):
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        yield translation_pb2_grpc.TranslationServiceStub(channel)


async def ask(stub, text, *, model="", caller="", key="", seconds=PATIENT, **options):
    """Translate a text. Refusals and failures are what these servers are asked for."""
    request = pb.TranslateRequest(texts=[text], model=model, options=pb.DecodingOptions(**options))
    metadata = [("x-caller", caller), *([("authorization", f"Bearer {key}")] if key else [])]
    with contextlib.suppress(grpc.aio.AioRpcError):
        await stub.Translate(request, timeout=seconds, metadata=metadata)


def read(address):
    with urllib.request.urlopen(address, timeout=PATIENT) as answer:
        return answer.read()


async def use(server, models):
    """Requests of all kinds; some are wrong, and some callers wait too short. A model is unloaded, a version bad."""
    while server.log.count("serving on") < 2:  # noqa: ASYNC110 it serves when one of two models is loaded
        await asyncio.sleep(SCRAPE)
    admin = server.log.split("models are loaded and unloaded on ")[1].split()[0]
    async with grpc.aio.insecure_channel(admin) as channel:
        unloading = models_pb2.UnloadModelRequest(name="other")
        await models_pb2_grpc.ModelServiceStub(channel).UnloadModel(unloading, timeout=PATIENT)
    models.publish_broken("manifest.json")
    server.process.send_signal(signal.SIGHUP)
    text, model = "请问，火车站在哪里？", "zh-en"
    address = server.log.split("JSON on ")[1].split()[0] + "/v1/translate"
    body = json.dumps({"texts": [text], "model": model}).encode()
    over_http = urllib.request.Request(address, body, {"content-type": "application/json"})
    async with stub_of(server) as stub:
        while True:
            await asyncio.gather(
                ask(stub, text, model=model),
                ask(stub, text, model=model, beam_size=4),
                ask(stub, text, model=model, beam_size=99),
                # The length keeps the fastest machine busy past the deadline, so that the answer is never in the cache.
                ask(stub, text * 10, model=model, beam_size=8, min_length=150, max_length=150, seconds=0.03),
                asyncio.to_thread(read, over_http),
                asyncio.sleep(0.1),
            )


async def flood(server):
    """Callers of a slow server fill its rows, its queue and its open calls; more are refused."""

    async def caller(stub, number):
        await asyncio.sleep(0.4 * min(number, 16))  # so that the rows do not all end at the same time
        while True:
            await asyncio.gather(ask(stub, "a" * 20, caller=str(number)), asyncio.sleep(0.2))

    async with stub_of(server) as stub, asyncio.TaskGroup() as callers:
        for number in range(16 + 24 + 8):
            callers.create_task(caller(stub, number))


async def fail(server, key):
    """Each step of the decoder fails, callers have no key, and the replicas are killed."""

    numbers = itertools.count()

    async def ask_all(stub):
        text = f"text {next(numbers)}"  # one that was refused is known
        requests = (ask(stub, text, key=key), ask(stub, text, key=key, beam_size=99), ask(stub, text))
        await asyncio.gather(*requests, asyncio.sleep(0.05))

    async with stub_of(server) as stub:
        for _ in range(80):
            await ask_all(stub)
        for replica in server.replicas():
            replica.kill()
        while True:
            await ask_all(stub)


async def fall_silent(server, has_fired):
    """Some calls, and then none; few file descriptors; at last the server is killed."""
    async with stub_of(server) as stub:
        for _ in range(20):
            await asyncio.gather(ask(stub, "a"), asyncio.sleep(0.1))
    files = psutil.Process(server.pid).num_fds()
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (files + 4, files + 4))
    await has_fired("TranslaneFileDescriptors")
    await has_fired("TranslaneNoTraffic")
    server.process.kill()
    await has_fired("TranslaneServerDown")


def numbers(series):
    return [float(each["value"][1]) for each in series]


def without_data(prometheus, queries):
    """The queries that give no number."""
    return [query for query in queries if all(map(math.isnan, numbers(prometheus.query(query))))]


def label_values(text):
    series, _, label = text.removeprefix("label_values(").removesuffix(")").rpartition(", ")
    for variable in ("$job", "$instance"):
        series = series.replace(variable, ".*")
    return series, label


async def test_every_alert_fires_and_every_query_has_data(prometheus, begin, tmp_path):
    if not BUNDLE.exists():
        pytest.skip("the bundled model is not in this tree")
    rules = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))
    all_rules = [rule for group in rules["groups"] for rule in group["rules"]]
    expected = {rule["alert"] for rule in all_rules if "alert" in rule}
    fired: dict[str, Any] = {}

    async def watch():
        while not expected <= set(fired):
            for alert in await asyncio.to_thread(prometheus.alerts):
                if alert["state"] == "firing":
                    fired[alert["labels"]["alertname"]] = alert
            await asyncio.sleep(SCRAPE)

    async def has_fired(name):
        while name not in fired:  # noqa: ASYNC110 the watch finds it
            await asyncio.sleep(SCRAPE)

    models = ModelFolder(tmp_path / "models")
    models.publish()
    shutil.copytree(BUNDLE, models.folder / "other")
    key = make_token()
    keys = key_file(tmp_path, shop=holder(key))
    one = ("--replicas=1", "--threads=1")
    servers = {
        "translane": begin(
            "used", f"--models={models.folder}", "--admin-port=0", "--http-port=0", "--cache-bytes=100000", *one
        ),
        "shop/translane-slow": begin(
            "slow",
            *("x", *one, "--max-batch-size=16", "--max-request-texts=1", "--max-queue-size=24"),
            *("--caller-header=x-caller", "--caller-share=1", "--max-calls=48"),
            **fake_model(FAKE_STEP_SECONDS="0.3"),
        ),
        "translane-faulty": begin(
            "faulty",
            *("x", "--replicas=4", "--threads=1", f"--keys-file={keys}"),
            **fake_model(FAKE_FAIL_AT_STEP="0", FAKE_MOST_LOSSES="1000"),
        ),
        "translane-quiet": begin("quiet", "x", *one, **fake_model()),
    }
    watching = asyncio.create_task(watch())
    async with asyncio.timeout(LONGEST):
        await has_fired("TranslaneNoServer")
        for server in servers.values():
            await asyncio.to_thread(server.wait_until_it_serves)
        prometheus.watch({job: f"127.0.0.1:{server.metrics_port}" for job, server in servers.items()})
        while numbers(await asyncio.to_thread(prometheus.query, "sum(up)")) != [len(servers)]:  # noqa: ASYNC110
            await asyncio.sleep(SCRAPE)
        used, slow, faulty, quiet = servers.values()
        work = (use(used, models), flood(slow), fail(faulty, key), fall_silent(quiet, has_fired))
        tasks = [asyncio.create_task(each) for each in work]
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST):
                await asyncio.wait((watching, *tasks[:-1]), return_when=asyncio.FIRST_COMPLETED)
        assert [task.exception() for task in tasks if task.done()] in ([], [None])
        assert sorted(expected - set(fired)) == []
        no_data = await asyncio.to_thread(check_queries, prometheus, all_rules)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENT):
                while no_data:  # on a busy machine, no call may have failed in the last five seconds
                    await asyncio.sleep(SCRAPE)
                    no_data = await asyncio.to_thread(without_data, prometheus, no_data)
    finally:
        for task in (watching, *tasks):
            task.cancel()
        await asyncio.gather(watching, *tasks, return_exceptions=True)
    assert no_data == []
    for alert in fired.values():
        assert all(text and "<" not in text and "{{" not in text for text in alert["annotations"].values()), alert
    assert fired["TranslaneRefusesForLoad"]["labels"]["job"] == "shop/translane-slow"
    assert fired["TranslaneModelNotLoaded"]["labels"]["model"] in ("other", "fake")


def check_queries(prometheus, rules):
    """The queries of panels, variables and recording rules that have no data. The rules themselves have no error."""
    assert [rule["lastError"] for rule in prometheus.rules() if rule["health"] != "ok"] == []
    asked = queries("5s")
    recorded = [rule["record"] for rule in rules if "record" in rule]
    variables = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["templating"]["list"]
    for variable in variables:
        if variable["type"] == "query":
            series, label = label_values(variable["query"]["query"])
            assert all(found["metric"][label] for found in prometheus.query(series))
            asked.append(series)
    return without_data(prometheus, [*asked, *recorded])
