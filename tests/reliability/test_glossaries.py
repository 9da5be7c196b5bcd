"""Large glossaries come while the server runs: everybody is served meanwhile, with the terms before or after."""

import random
import time

import grpc
import pytest

from helpers.reliability.bounds import HONEST_CALL
from helpers.reliability.probe import bystander
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(300)

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


@pytest.mark.slow
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
