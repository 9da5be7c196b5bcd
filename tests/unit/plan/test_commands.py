"""`translane-plan`: what it prints, and one sentence for whatever is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.plan_profiles import MILLI, profile
from translane_plan.__main__ import main
from translane_plan.profile import write_profile

QUICK = ["--cores", "2", "--requests", "500"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "profile.json"
    write_profile(path, profile(step=MILLI, row=MILLI / 16, request=MILLI / 2))
    return str(path)


def test_a_plan_for_people(file, capsys):
    assert main(["size", file, "--rate", "400", "--p95", "100ms", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "demo (int8), measured on Some processor" in out
    for name in ("machines", "each runs", "rate", "expected", "goal", "busy", "network", "limit"):
        assert f"\n{name}  " in out
    assert "goal        p95 100.0 ms: kept" in out
    assert "translane-server --front-ends 1 --replicas 2 --threads 1 --rows 64" in out
    assert "Simulated, not measured" in out


def test_a_plan_for_programs(file, capsys):
    assert main(["size", file, "--rate", "400", "--p95", "0.1", "--format", "json", *QUICK]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["sentences_per_second"] == 400
    assert plan["machine"]["flags"][:2] == ["--front-ends", "1"]
    assert plan["is_kept"] is True
    assert 0 < plan["latency_seconds"]["p50"] <= plan["latency_seconds"]["p95"] <= 0.1
    assert plan["machines"] == 1
    assert main(["size", file, "--rate", "400", "--p95", "0.1", "--format", "json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out) == plan


def test_names_of_a_profile_are_fit_for_a_terminal(tmp_path, capsys):
    path = tmp_path / "profile.json"
    write_profile(path, profile(processor="\x1b[2Jmine\nmachines  0"))
    assert main(["size", str(path), "--rate", "40", "--machines", "1", *QUICK]) == 0
    assert "measured on \\x1b[2Jmine\\nmachines  0, 2026" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_in_a_sentence(file):
    command = [sys.executable, "-m", "translane_plan", "size", file, "--rate", "10", "--machines", "1", *QUICK]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    told = "translane-plan size: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_too_much_for_some_machines_is_no_success(file, capsys):
    assert main(["size", file, "--rate", "90000", "--machines", "1", "--format", "json", *QUICK]) == 1
    assert json.loads(capsys.readouterr().out)["is_kept"] is False
    assert main(["size", file, "--rate", "90000", "--machines", "1", "--requests", "4000"]) == 1
    assert "expected    too much: " in capsys.readouterr().out


def test_lengths_of_a_file_and_of_a_mean(file, tmp_path, capsys):
    lengths = tmp_path / "lengths"
    lengths.write_text("30 60\n")
    found = []
    for more in ([], ["--lengths", str(lengths)], ["--lengths", "40"]):
        assert main(["size", file, "--machines", "1", "--rate", "20", "--format", "json", *QUICK, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["latency_seconds"]["p50"])
    assert found[0] < found[1]
    assert found[0] < found[2]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], 2, "a command is needed: measure or size"),
        (["plan"], 2, "unknown command 'plan': measure or size"),
        (["size", "{file}"], 2, "two of --rate, --p95 and --machines are needed"),
        (["size", "{file}", "--rate", "5"], 2, "two of --rate, --p95 and --machines are needed"),
        (["size", "{file}", "--rate", "0", "--p95", "1s"], 2, "--rate: input should be greater than 0"),
        (["size", "{file}", "--rate", "inf", "--p95", "1s"], 2, "--rate: input should be a finite number"),
        (["size", "{file}", "--rate", "5", "--p95", "soon"], 2, "--p95: a time such as 500ms or 0.5s is needed"),
        (["size", "{file}", "--rate", "5", "--p95=-1s"], 2, "--p95: input should be greater than 0"),
        (["size", "{file}", "--rate", "5", "--p95", "1s", "--cores", "9999"], 2, "--cores: input should be less"),
        (["size", "{file}", "--rate", "5", "--p95", "1s", "--core", "9"], 2, "unknown argument --core"),
        (["size", "{file}", "--rate", "5", "--p95", "1s", "--lengths", "0"], 2, "--lengths: a mean of 1 to 65536"),
        (["size", "{file}", "--rate", "5", "--p95", "1s", "--lengths", "nan"], 2, "--lengths: a mean of 1 to 65536"),
        (["size", "{file}", "--rate", "5", "--p95", "1s", "--lengths", "1_0"], 1, "--lengths: 1_0: No such file"),
        (["size", "{file}", "--rate", "5", "--p95", "1s", "--lengths", "none"], 1, "--lengths: none: No such file"),
        (["size", "{file}", "--rate", "5", "--p95", "1ms"], 1, "a lone request takes"),
        (["size", "{file}", "--rate", "5", "--p95", "1s", "--front-ends", "9"], 1, "at most the CPUs granted (8)"),
        (
            ["size", "{file}", "--rate", "5", "--p95", "1s", "--texts-per-request", "2000", "--requests", "100"],
            1,
            "--texts-per-request 2000: a front end of this server lets 1024 sentences wait",
        ),
        (
            ["size", "{file}", "--rate", "5", "--p95", "1s", "--texts-per-request", "512", "--requests", "100000"],
            2,
            "51,200,000 sentences, and at most 10,000,000 are simulated",
        ),
        (["size", "none.json", "--rate", "5", "--p95", "1s"], 1, "profile none.json: it cannot be read"),
        (["measure", "none"], 2, "--output is required"),
        (["measure", "none", "-o", "{folder}/x.json"], 1, "model bundle none: there is no such folder"),
        (["measure", "none", "-o", "{folder}"], 1, "it is a folder, not a file"),
        (["measure", "none", "-o", "{folder}/no/x.json"], 1, "there is no folder"),
        (["measure", "none", "-o", "x.json", "--seconds", "1000"], 2, "--seconds: input should be less"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(file, tmp_path, capsys, monkeypatch, arguments, code, sentence):
    monkeypatch.chdir(tmp_path)
    words = [word.format(file=file, folder=tmp_path) for word in arguments]
    assert main(words) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith("translane-plan")
    assert sentence in told.err


def test_variables_are_flags(file, monkeypatch, capsys):
    monkeypatch.setenv("TRANSLANE_PLAN_SIZE_RATE", "100")
    monkeypatch.setenv("TRANSLANE_PLAN_SIZE_MACHINES", "1")
    assert main(["size", file, "--format", "json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out)["sentences_per_second"] == 100
    monkeypatch.setenv("TRANSLANE_PLAN_SIZE_RATES", "100")
    assert main(["size", file, *QUICK]) == 2
    assert "did you mean TRANSLANE_PLAN_SIZE_RATE?" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--help", "-h", "--version", "-V"])
def test_help_and_version(capsys, word):
    assert main([word]) == 0
    assert "translane-plan" in capsys.readouterr().out


def test_a_plan_needs_no_runtime(file):
    program = "import sys; sys.modules |= {'numpy': None, 'onnxruntime': None}; import translane_plan.__main__ as plan"
    command = [sys.executable, "-c", f"{program}; sys.exit(plan.main(sys.argv[1:]))", "size", file]
    done = subprocess.run([*command, "--rate", "10", "--machines", "1", *QUICK], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
