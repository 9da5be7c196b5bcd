"""The output appears complete or not at all, and a signal that ends an export is one sentence."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.file_sizes import largest_file
from translane_export.core.errors import ExportError
from translane_export.core.output_folder import check_replaceable, staged

MARKERS = ("manifest.json", "torchscript.json")
MANIFEST = json.dumps({"schema_version": 1, "files": {"weights.bin": {}}})


def write(folder, name="manifest.json", text="old"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_folder_takes_its_place_at_the_end_and_as_a_whole(tmp_path, earlier):
    output = tmp_path / "deep" / "bundle"
    if earlier:
        write(output)
        write(output, "other.bin")
    with staged(output) as folder:
        write(folder, text="new")
        assert output.exists() is earlier
    assert [path.name for path in output.iterdir()] == ["manifest.json"]
    assert (output / "manifest.json").read_text() == "new"
    assert list(output.parent.iterdir()) == [output]


def fail(output, error):
    with staged(output) as folder:
        write(folder, text="new")
        raise error


@pytest.mark.parametrize("error", [ExportError("no"), KeyboardInterrupt(), ValueError("a bug")])
def test_after_an_error_everything_is_as_before(tmp_path, error):
    output = tmp_path / "bundle"
    write(output)
    with pytest.raises(type(error)):
        fail(output, error)
    assert (output / "manifest.json").read_text() == "old"
    assert list(tmp_path.iterdir()) == [output]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ExportError, match=r"output .*bundle: it cannot be written: "),
        staged(tmp_path / "file" / "bundle"),
    ):
        pass


def test_of_folders_on_the_way_those_that_were_there_stay(tmp_path):
    (tmp_path / "one").mkdir()
    with pytest.raises(ExportError, match="no"):
        fail(tmp_path / "one" / "two" / "bundle", ExportError("no"))
    assert list(tmp_path.rglob("*")) == [tmp_path / "one"]


def test_a_disk_that_is_full_is_one_sentence_and_leaves_nothing(tmp_path):
    output = tmp_path / "deep" / "bundle"
    with (
        pytest.raises(ExportError, match=r"output .*bundle: it cannot be written: File too large"),
        largest_file(1000),
        staged(output) as folder,
    ):
        (folder / "weights.bin").write_bytes(bytes(2000))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("name", ["bundle", "deep/bundle"])
def test_a_folder_without_permission_is_refused_beforehand(tmp_path, name):
    (tmp_path / "locked").mkdir(mode=0o555)
    with pytest.raises(ExportError, match="locked cannot be written to"):
        check_replaceable(tmp_path / "locked" / name, force=False, markers=MARKERS)


def test_what_may_be_replaced(tmp_path):
    output = tmp_path / "bundle"
    check_replaceable(output, force=False, markers=MARKERS)
    output.mkdir()
    check_replaceable(output, force=False, markers=MARKERS)
    write(output, text=MANIFEST)
    write(output, "weights.bin")
    check_replaceable(output, force=True, markers=MARKERS)
    with pytest.raises(ExportError, match="there is a model bundle already; --force replaces it"):
        check_replaceable(output, force=False, markers=MARKERS)


OTHERS = "it holds other files than a model bundle, which are left alone"
NO_MANIFESTS = ("old", "[]", '{"name": "an extension"}', '{"schema_version": 1, "files": ["a"]}')


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("notes", OTHERS),
        ("notes/thesis.tex", "it is not a folder"),
        ("link", "it is not a folder"),
        ("notes/thesis.tex/bundle", r"output .*bundle: .*thesis.tex is not a folder"),
        ("notes/thesis.tex/deep/bundle", r"output .*bundle: .*thesis.tex is not a folder"),
        ("a" * 300, "it cannot be written: File name too long"),
        ("/", "output /: it is a mount point"),
        ("models", OTHERS),  # a folder of other bundles
        *((f"extension {number}", OTHERS) for number in range(len(NO_MANIFESTS))),
    ],
)
def test_what_is_no_earlier_output_is_left_alone(tmp_path, name, message, force):
    write(tmp_path / "notes", "thesis.tex")
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    write(tmp_path / "models" / "zh-en", text=MANIFEST)
    for number, text in enumerate(NO_MANIFESTS):
        write(tmp_path / f"extension {number}", text=text)
    with pytest.raises(ExportError, match=message):
        check_replaceable(tmp_path / name, force=force, markers=MARKERS, parts=("fp16", "int8"))


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError, match="it is the current folder"):
        check_replaceable(Path(), force=False, markers=MARKERS)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("marker", MARKERS)
def test_files_put_into_a_bundle_are_left_alone(tmp_path, force, marker):
    write(tmp_path, marker, MANIFEST)
    write(tmp_path, "thesis.txt")
    with pytest.raises(ExportError, match=r"it holds other files: thesis\.txt; they are left alone"):
        check_replaceable(tmp_path, force=force, markers=MARKERS)
    write(tmp_path / "chapters", "one.txt")
    with pytest.raises(ExportError, match=r"it holds other files: chapters and 2 more; they are left alone"):
        check_replaceable(tmp_path, force=force, markers=MARKERS)


@pytest.mark.parametrize("after", [1, 2])
def test_an_interruption_between_the_renames_loses_nothing(tmp_path, monkeypatch, after):
    output = tmp_path / "bundle"
    write(output)
    rename, calls = Path.rename, []

    def interrupted(path, target):
        calls.append(path)
        if len(calls) == 2 and after == 2:
            raise KeyboardInterrupt
        rename(path, target)
        if len(calls) == 1 and after == 1:
            raise KeyboardInterrupt

    def export():
        with staged(output) as folder:
            write(folder, text="new")
            monkeypatch.setattr(Path, "rename", interrupted)

    with pytest.raises(KeyboardInterrupt):
        export()
    assert (output / "manifest.json").read_text() == "old"
    assert list(tmp_path.iterdir()) == [output]


def test_an_output_of_parts_is_replaced_where_nothing_else_is_in_it(tmp_path):
    output = tmp_path / "bundles"
    for part in ("fp16", "int8"):
        write(output / part, text=MANIFEST)
        write(output / part, "weights.bin")
    check_replaceable(output, force=True, markers=MARKERS, parts=("fp16", "int8"))
    with pytest.raises(ExportError, match="--force replaces it"):
        check_replaceable(output, force=False, markers=MARKERS, parts=("fp16", "int8"))
    with pytest.raises(ExportError, match="it holds other files: int8"):
        check_replaceable(output, force=True, markers=MARKERS, parts=("fp16",))
    write(output / "int8", "mine.txt")
    with pytest.raises(ExportError, match=r"it holds other files: int8/mine\.txt"):
        check_replaceable(output, force=True, markers=MARKERS, parts=("fp16", "int8"))


SCRIPT = """
import os, signal, sys, time
from translane_export.command import supervise
code = supervise("translane export")
if code is not None:
    sys.exit(code)
{body}
"""


def start(body):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(body=body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("name", ["SIGABRT", "SIGBUS", "SIGSEGV", "SIGKILL"])
def test_an_export_that_a_signal_ends(name):
    process = start(f"os.kill(os.getpid(), signal.{name})")
    _, error = process.communicate(timeout=60)
    assert error == (
        f"translane export: ended by {name}: there is too little memory, or a file is damaged or was changed"
        " meanwhile\n"
    )
    assert process.returncode == 1


def test_an_export_that_ends_by_itself():
    process = start("print('done'); print('a sentence', file=sys.stderr); os.write(2, b'noise'); sys.exit(7)")
    assert process.communicate(timeout=60) == ("done\n", "a sentence\n")
    assert process.returncode == 7


@pytest.mark.parametrize(
    "number",
    [
        *(signal.SIGTERM, signal.SIGHUP),
        pytest.param(
            signal.SIGINT,
            marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process from the terminal"),
        ),
    ],
)
def test_a_signal_reaches_the_export(number):
    body = """
def end(number, frame):
    os.write(1, b"removed %d\\n" % number)  # print would fail where the signal interrupts a print
    sys.exit(9)
for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(each, end)
print("ready", flush=True)
while True:
    time.sleep(0.1)  # a signal that comes just before a sleep is handled after that sleep
"""
    process = start(body)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=60) == (f"removed {int(number)}\n", "")
    assert process.returncode == 9
