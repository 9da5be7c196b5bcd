"""Weights change on the disk of a running server, and large glossaries are read: no answer is wrong or late."""

import asyncio
import os
import random
import shutil
import time
from functools import partial

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.reliability.bounds import HONEST_CALL, RECOVERY
from helpers.reliability.chaos import Chaos
from helpers.reliability.form import form
from helpers.reliability.load import Load
from helpers.reliability.probe import bystander
from helpers.reliability.waiting import within
from helpers.server_process import BUNDLE
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(form(300, 600))]

BETWEEN = form(30, 2000)  # answers after each fault
HOSTS = {"forked": ("--replicas=2", "--threads=1"), "own": ("--replicas=2", "--threads=2")}
REPLACED = "has been replaced"
SETTLED = 2.5  # the age of files whose times tell every later change [seconds]
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Weights:
    """The weights of a copy of the bundled model."""

    def __init__(self, folder):
        self.folder = shutil.copytree(BUNDLE, folder)
        self._path = folder / "weights.bin"
        self._content = self._path.read_bytes()
        flipped = bytearray(self._content)
        flipped[::997] = bytes(byte ^ 0x40 for byte in flipped[::997])
        self._flipped = bytes(flipped)

    def flip(self):
        """Change bits of the very file that replicas have open."""
        with self._path.open("r+b") as file:
            file.write(self._flipped)

    def cut(self):
        os.truncate(self._path, len(self._content) // 2)

    def replace(self):
        other = self._path.with_name("other")
        other.write_bytes(self._flipped)
        other.replace(self._path)

    def remove(self):
        self._path.unlink()

    def put_back(self):
        self._path.write_bytes(self._content)


@pytest.fixture
def weights(tmp_path):
    return Weights(tmp_path / "zh-en")


def complaints(server):
    return [line for line in server.log.splitlines() if "ERROR" in line and "weights.bin" in line]


@pytest.mark.parametrize(
    ("host", "harm"),
    [
        ("own", "flip"),
        ("own", "cut"),
        ("forked", "flip"),
        ("forked", "remove"),
        *form([], [("own", "replace"), ("forked", "cut")]),
    ],
)
async def test_no_answer_is_from_weights_that_have_changed(start, oracle, figures, weights, host, harm):
    """The weights are harmed, replicas are killed under load, and the weights come back."""
    if harm in ("replace", "remove"):
        await asyncio.sleep(SETTLED)
    kills = {"own": 1, "forked": 2}[host]

    def are_replaced(count):
        return host == "own" or server.log.count(REPLACED) == count

    with start(str(weights.folder), *HOSTS[host]) as server, bystander(server.address) as seen:
        chaos = Chaos(server)
        async with Load(server.address, oracle, callers=8, timeout=60) as load:
            await load.wait_for_answers(BETWEEN)
            getattr(weights, harm)()
            await load.wait_for_answers(BETWEEN)
            for number in range(1, kills + 1):
                chaos.kill(chaos.a_replica())
                await load.lightly(within(RECOVERY, lambda: complaints(server)))
                await load.lightly(within(RECOVERY, partial(are_replaced, number)))
                await load.wait_for_answers(BETWEEN)
            replaced = server.log.count(REPLACED)
            weights.put_back()
            all_back = await load.lightly(within(3 * RECOVERY, lambda: server.log.count(REPLACED) == kills))
            await load.wait_for_answers(BETWEEN)
        told, log = complaints(server), server.log
    figures.add(
        host=host, harm=harm, killed=kills, replaced=replaced, told=len(told), all_back=all_back, **load.figures,
        **seen.figures,
    )  # fmt: skip
    load.assert_nothing_lost(BETWEEN)
    assert not seen.failed
    assert replaced == (kills if host == "forked" else 0), "what has loaded the weights has them still"
    assert len(told) == 1, log
    assert "onnxruntime" not in log
    assert all_back


@pytest.mark.parametrize("soon", [True, False])
async def test_a_model_whose_last_replica_is_lost_says_so_and_comes_back(start, oracle, figures, weights, soon):
    with start(str(weights.folder), *HOSTS["forked"]) as server:
        with grpc.insecure_channel(server.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            async with Load(server.address, oracle, callers=8, timeout=60) as load:
                await load.wait_for_answers(BETWEEN)
                weights.flip()
                Chaos(server).kill(server.forkers())
                told = await within(RECOVERY, lambda: complaints(server))
                if not soon:  # callers are refused meanwhile
                    await within(RECOVERY, lambda: server.log.count("it is tried again") == len(HOSTS["forked"]))
                status = health.Check(health_pb2.HealthCheckRequest(), timeout=10).status
                weights.put_back()
                await load.wait_for_answers(BETWEEN)
                answered = load.answered
        log = server.log
    figures.add(soon=soon, told=told, **load.figures)
    assert load.wrong == []
    assert status == NOT_SERVING
    assert len(complaints(server)) <= 2, log  # of each replica
    assert answered > BETWEEN
    assert load.lost == 0


# Large glossaries come while the server runs: everybody is served meanwhile, with the terms before or after.


FILES = ("large", "b", "c", "d")
TERMS = 50_000  # of each file
READING_TIME = 120.0  # by when the new terms are used [seconds]
HEALTH = 1.0  # the longest time without an answer about health [seconds]
HAN = [chr(point) for point in range(0x4E00, 0x4E00 + 3500)]
REQUEST = pb.TranslateRequest(texts=["我有一只猫。"], options=pb.DecodingOptions(glossaries=["large"]))


def put(folder, name, target, terms):
    """Write a glossary of `terms` terms: 猫, which is `target`, and random ones of 2 to 40 characters."""
    drawn = random.Random(name)
    lines = [
        f"{''.join(drawn.choices(HAN, k=drawn.randint(2, 40)))}{number}\tterm {number}\n" for number in range(terms - 1)
    ]
    whole = folder / f".{name}.zh.en.tsv"
    whole.write_text(f"{''.join(lines)}猫\t{target}\n", encoding="utf-8")
    whole.rename(folder / f"{name}.zh.en.tsv")


def test_large_glossaries_are_read_while_everybody_is_served(start, tmp_path, figures):
    folder = tmp_path / "glossaries"
    folder.mkdir()
    put(folder, "large", "dog", terms=1)
    with start(f"--glossaries={folder}") as server, grpc.insecure_channel(server.address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)

        def target():
            (report,) = stub.Translate(REQUEST, timeout=HONEST_CALL).translations[0].treatment.terms
            return report.target

        assert target() == "dog"
        with bystander(server.address) as seen:
            taken = []
            for before, after in (("dog", "cat"), ("cat", "kitten")):  # it comes, and it changes
                for name in FILES:
                    put(folder, name, after, TERMS)
                began = time.monotonic()
                while (now := target()) == before and time.monotonic() - began < READING_TIME:
                    time.sleep(0.05)
                taken.append(time.monotonic() - began)
                assert now == after
        figures.add(terms=len(FILES) * TERMS, used_after_s=taken, **seen.figures)
        assert seen.failed == {}
        assert seen.health < HEALTH
