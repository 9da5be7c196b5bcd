"""Which bundle fits a device, and shortlists of bundles."""

import json
import logging
import random
import shutil
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from helpers.refusals import refusal
from helpers.tiny_bundle import TINY, put_bundle
from translane_server.bundle import devices
from translane_server.bundle.bundle import Bundle, load_bundle
from translane_server.bundle.shortlist import LONGEST_NGRAM, Shortlist, load_shortlist, longest_ngram, write_shortlist
from translane_server.core.errors import BundleError, DeviceError

WORKS, BROKEN = "", "CUDA finds no GPU"


def asked(script):
    return (sys.executable, "-c", script)


@pytest.fixture
def probe(monkeypatch):
    """In place of the probe. Its `return_value` is the answer."""
    probe = Mock()
    monkeypatch.setattr(devices, "why_no_cuda", probe)
    return probe


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "translane_server")
    return caplog


# (bundles by precision, requested device, what the probe answers) → (precision, device) that run
CHOICES: dict[tuple[tuple[str, ...], str, str | None], tuple[str, str]] = {
    (("fp16",), "auto", WORKS): ("fp16", "cuda"),
    (("bf16",), "auto", WORKS): ("bf16", "cuda"),
    (("fp16",), "auto", BROKEN): ("fp16", "cpu"),
    (("fp16",), "cuda", WORKS): ("fp16", "cuda"),
    (("bf16",), "cuda", WORKS): ("bf16", "cuda"),
    **{(("fp16",), "cpu", answer): ("fp16", "cpu") for answer in (WORKS, BROKEN)},
    **{
        ((precision,), device, answer): (precision, "cpu")
        for precision in ("fp32", "int8")
        for device in ("auto", "cpu")
        for answer in (WORKS, BROKEN)
    },
    (("fp32", "int8", "bf16", "fp16"), "auto", WORKS): ("fp16", "cuda"),
    (("fp32", "int8", "bf16", "fp16"), "cuda", WORKS): ("fp16", "cuda"),
    (("fp32", "int8", "bf16", "fp16"), "auto", BROKEN): ("int8", "cpu"),
    (("fp32", "int8", "bf16", "fp16"), "cpu", WORKS): ("int8", "cpu"),
    (("fp32", "bf16"), "auto", WORKS): ("bf16", "cuda"),
    (("fp32", "bf16"), "auto", BROKEN): ("fp32", "cpu"),
    (("fp32", "fp16"), "auto", BROKEN): ("fp32", "cpu"),
    (("bf16", "fp16"), "auto", BROKEN): ("fp16", "cpu"),
    (("bf16", "fp16"), "cpu", WORKS): ("fp16", "cpu"),
    (("int8", "fp32"), "auto", WORKS): ("int8", "cpu"),
}


@pytest.mark.parametrize(("held", "requested", "answer"), CHOICES, ids=str)
def test_the_best_bundle_of_the_best_device_that_works_is_taken(probe, log, held, requested, answer):
    probe.return_value = answer
    expected = CHOICES[held, requested, answer]
    assert devices.choose_precision(requested, held) == expected
    # Trying CUDA takes seconds, so nobody waits for it where the answer changes nothing.
    for_cuda = requested != "cpu" and {"fp16", "bf16"} & {*held}
    assert probe.called == bool(for_cuda)
    said = f"running on the CPU, not on CUDA: {BROKEN}"
    times = 0 if expected[1] == "cuda" or not for_cuda else 1
    assert [(record.levelname, record.message) for record in log.records] == [("WARNING", said)] * times


EXPORT = "CUDA runs fp16 and bf16 bundles; export the checkpoint with --precision fp16"
ON_CPU = (
    "the model bundle is bf16, and CPUs run fp32, int8 and fp16 bundles; export the checkpoint with --precision int8"
)
# The same for what is refused → what is said, of devices that do not work, and of bundles that a device does not run
REFUSED: dict[tuple[tuple[str, ...], str, str], str] = {
    **{((precision, "int8"), "cuda", BROKEN): BROKEN for precision in ("fp16", "bf16")},
    **{
        (held, "cuda", answer): f"the model bundle is {' and '.join(held)}, and {EXPORT}"
        for held in (("int8",), ("fp32",), ("int8", "fp32"))
        for answer in (WORKS, BROKEN)
    },
    (("bf16",), "cpu", BROKEN): ON_CPU,
    (("bf16",), "auto", BROKEN): f"{ON_CPU} (CUDA is not used: {BROKEN})",
}


@pytest.mark.parametrize(("held", "requested", "answer"), REFUSED, ids=str)
def test_what_does_not_run_is_refused_with_the_reason(probe, log, held, requested, answer):
    probe.return_value = answer
    said = refusal(DeviceError, devices.choose_precision, requested, held)
    assert said == f"device {requested}: {REFUSED[held, requested, answer]}"
    assert probe.called == (requested != "cpu" and bool({"fp16", "bf16"} & {*held}))
    assert not log.records


# What a process that tries CUDA may come to → what is said
ENDS = {
    "pass": "",
    "print('told before'); print('CUDA finds no GPU'); exit(1)": "CUDA finds no GPU",
    "import sys; sys.stderr.write('noise'); print('one reason'); exit(1)": "one reason",
    "exit(3)": "the process that tried CUDA ended with exit code 3",
    "raise RuntimeError": "the process that tried CUDA ended with exit code 1",
    "import os; os.kill(os.getpid(), 11)": "the process that tried CUDA was ended by SIGSEGV",
    "import os; os.kill(os.getpid(), 40)": "the process that tried CUDA was ended by signal 40",
    "import os; os.write(1, b'\\xff'); exit(1)": "\N{REPLACEMENT CHARACTER}",
}


@pytest.mark.parametrize("script", ENDS)
def test_however_the_probe_ends_there_is_one_sentence(monkeypatch, script):
    monkeypatch.setattr(devices, "_PROBE", asked(script))
    assert devices.why_no_cuda("fp16") == ENDS[script]


def test_a_probe_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(devices, "_PROBE", asked("import time; time.sleep(60)"))
    monkeypatch.setattr(devices, "_PATIENCE", 1.0)
    assert devices.why_no_cuda("fp16") == "CUDA did not answer within 1 seconds"


def test_the_probe_is_asked_in_a_process_of_its_own():
    """Not by hand of a fake: what is asked is there, and answers for this machine."""
    reason = devices.why_no_cuda("fp16")
    assert "\n" not in reason
    assert "the process that tried CUDA" not in reason
    assert "No module" not in reason


# A folder is a bundle, or holds one for each precision, of which one is taken


def put(folder, precision):
    graphs = json.loads((TINY / "manifest.json").read_text())["graphs"]
    for tensor in graphs["decoder"]["inputs"]:
        if tensor["name"].startswith("self_"):
            tensor["dtype"] = {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")
    if precision in ("fp16", "bf16"):
        graphs["greedy"] = graphs["decoder"]
    return put_bundle(folder, precision=precision, graphs=graphs)


@pytest.fixture
def folder(tmp_path):
    """A folder of a bundle of each precision."""
    for precision in ("fp32", "int8", "fp16", "bf16"):
        put(tmp_path / "model" / precision, precision)
    return tmp_path / "model"


def bundle_error(folder):
    return refusal(BundleError, devices.choose_bundle, folder, "auto")


def test_a_folder_with_a_manifest_is_a_bundle_whatever_else_it_holds(tmp_path, probe, log):
    probe.return_value = ""
    put(tmp_path / "bundle", "fp32")
    put(tmp_path / "bundle" / "fp16", "fp16")
    bundle, device = devices.choose_bundle(tmp_path / "bundle", "auto")
    assert (bundle.folder, bundle.manifest.precision, device) == (tmp_path / "bundle", "fp32", "cpu")
    assert not log.messages


@pytest.mark.parametrize(("answer", "precision", "device"), [("", "fp16", "cuda"), ("no GPU", "int8", "cpu")])
def test_the_bundle_of_the_device_is_taken_and_told_of(folder, probe, log, answer, precision, device):
    probe.return_value = answer
    bundle, chosen = devices.choose_bundle(folder, "auto")
    assert (bundle.folder, bundle.manifest.precision, chosen) == (folder / precision, precision, device)
    assert bundle.manifest == load_bundle(folder / precision).manifest
    warned = ["running on the CPU, not on CUDA: no GPU"] if answer else []
    assert log.messages == [*warned, f"model bundle {folder}: taking {precision} of fp16, bf16, int8, fp32"]


def test_a_bundle_that_is_not_taken_needs_no_weights(folder, probe):
    probe.return_value = "no GPU"
    (folder / "fp16" / "weights.bin").unlink()
    assert devices.choose_bundle(folder, "auto")[0].folder == folder / "int8"
    probe.return_value = ""
    assert bundle_error(folder) == f"model bundle {folder / 'fp16'}: weights.bin is missing"


def gone(folder):
    shutil.rmtree(folder)
    return folder


NO_MANIFEST, NO_FOLDER = "it has no manifest.json", "it should be a folder with a bundle of that precision"
# What is wrong in a folder, where, and how it is told
DAMAGES = [
    (lambda folder: shutil.copytree(folder / "int8", gone(folder / "fp32")), "fp32", "its precision is int8, unlike"),
    (lambda folder: gone(folder / "int8").mkdir(), "int8", NO_MANIFEST),
    (lambda folder: gone(folder / "fp16").touch(), "fp16", NO_FOLDER),
    (lambda folder: gone(folder / "fp16").symlink_to("nowhere"), "fp16", NO_FOLDER),
    (lambda folder: gone(folder).mkdir(), ".", NO_MANIFEST),
    (gone, ".", "there is no such folder"),
]


@pytest.mark.parametrize(("damage", "place", "problem"), DAMAGES)
def test_what_is_no_folder_of_bundles_is_refused(folder, probe, damage, place, problem):
    probe.return_value = ""
    damage(folder)
    assert bundle_error(folder).startswith(f"model bundle {folder / place}: {problem}")


# A shortlist gives the tokens that its rules say, and survives its file.


SOURCES, TARGETS = 20, 50


def load(path):
    sizes = SimpleNamespace(source_vocab_size=SOURCES, target_vocab_size=TARGETS)
    manifest: Any = SimpleNamespace(shortlist=path.name, architecture=sizes)
    return load_shortlist(Bundle(path.parent, manifest))


def naive_tokens(rules, always, source_ids, more):
    found = {*always, *more}
    for ngram, tokens in rules.items():
        places = range(len(source_ids) - len(ngram) + 1)
        if any(tuple(source_ids[place : place + len(ngram)]) == ngram for place in places):
            found |= set(tokens)
    return sorted(found)


def random_rules(draw, count=60):
    return {
        tuple(draw.choices(range(SOURCES), k=draw.randint(1, 3))): draw.choices(range(TARGETS), k=draw.randint(1, 4))
        for _ in range(count)
    }


@pytest.mark.parametrize("seed", range(5))
def test_tokens_are_those_of_all_ngrams(seed, tmp_path):
    draw = random.Random(seed)
    rules, always = random_rules(draw), draw.sample(range(TARGETS), 5)
    shortlist = Shortlist.of(rules, always, SOURCES)
    write_shortlist(shortlist, tmp_path / "shortlist.bin")
    again = load(tmp_path / "shortlist.bin")
    for length in (1, 2, 3, 10, 40):
        source_ids = draw.choices(range(SOURCES), k=length)
        more = draw.sample(range(TARGETS), 2)
        expected = naive_tokens(rules, always, source_ids, more)
        assert shortlist.tokens(source_ids, more).tolist() == expected
        assert again.tokens(source_ids, more).tolist() == expected


def test_without_rules():
    shortlist = Shortlist.of({}, [7, 3, 3], SOURCES)
    assert shortlist.tokens([1, 2, 3]).tolist() == [3, 7]


def test_ngrams_are_numbers_of_63_bits():
    assert longest_ngram(65_001) == 3
    assert longest_ngram(10_000_000) == 2
    assert longest_ngram(20) == LONGEST_NGRAM
    last = (65_000,) * 3
    shortlist = Shortlist.of({last: [4]}, [0], 65_001)
    assert shortlist.order == 3
    assert shortlist.tokens([1, *last]).tolist() == [0, 4]
    assert shortlist.tokens([65_000] * 2).tolist() == [0]
    with pytest.raises(ValueError, match="has 4 tokens, and at most 3 are possible"):
        Shortlist.of({(1,) * 4: [2]}, [0], 65_001)


def content(always=(1,), keys=(1, 2), starts=(0, 1, 2), targets=(3, 4), counts=None):
    counts = counts or (len(always), len(keys), len(starts), len(targets))
    return b"TLSHORT1" + np.array([*counts, *always, *keys, *starts, *targets], "<i8").tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (b"", "does not start"),
        (b"TLSHORT1", "does not start"),
        (content().replace(b"1", b"2", 1), "does not start"),
        (content()[:-1], "does not start"),
        (content()[:-8], "another size"),
        (content() + b"x", "does not start"),
        (content() + bytes(8), "another size"),
        (content(counts=(1, 2, 3, 1 << 62)), "another size"),
        (content(counts=(1, -2, 3, 6)), "another size"),
        (content(starts=(0, 1)), "do not match"),
        (content(starts=(0, 3, 2)), "do not match"),
        (content(starts=(1, 1, 2)), "do not match"),
        (content(keys=(2, 2)), "in order"),
        (content(keys=(0, 2)), "in order"),
        (content(always=(5, 1)), "in order"),
        (content(always=()), "always allowed"),
        (content(always=(-1,)), "none of 50"),
        (content(targets=(3, 50)), "none of 50"),
    ],
)
def test_wrong_files_are_refused(tmp_path, wrong, message):
    (tmp_path / "wrong.bin").write_bytes(wrong)
    with pytest.raises(BundleError, match=f"wrong.bin is no shortlist of this model: .*{message}"):
        load(tmp_path / "wrong.bin")


def test_a_right_file(tmp_path):
    (tmp_path / "right.bin").write_bytes(content())
    assert load(tmp_path / "right.bin").tokens([0, 1]).tolist() == [1, 3, 4]
