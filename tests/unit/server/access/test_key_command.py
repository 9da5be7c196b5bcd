import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from helpers.commands import keys as run
from translane_server.access.keys import MOST_KEYS_OF_A_HOLDER, digest_of, is_token, load_keys


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.toml"


@pytest.fixture
def keys(path, capsys):
    """Run the command, and return its code and what it wrote."""

    def call(*argv):
        code = run(argv, {"TRANSLANE_KEYS_FILE": str(path)})
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_add_prints_the_key_and_keeps_its_hash_alone(keys, path):
    code, out, err = keys("add", "team-a", "--expires", "30d", "--sentences-in-flight", "9", "--note", "nights")
    token = out.strip()
    assert (code, err) == (0, "")
    assert is_token(token)
    (key,) = load_keys(path)["team-a"].keys
    assert bytes.fromhex(key.sha256) == digest_of(token)
    assert key.expires is not None
    assert abs(key.expires - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)
    assert token[3:] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["keys.toml"]


def test_a_file_keeps_its_mode_and_its_link(keys, path, tmp_path):
    keys("add", "a")
    path.chmod(0o640)
    real = path.rename(tmp_path / "real.toml")
    path.symlink_to(real)
    keys("add", "b")
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert list(load_keys(path)) == ["a", "b"]


def test_rotate_lets_older_keys_expire(keys, path):
    keys("add", "a", "--sentences-per-second", "5")
    keys("add", "a", "--expires", "2090-01-01T00:00:00Z")
    code, out, _ = keys("rotate", "a", "--keep", "2100-01-01T00:00:00+01:00")
    holder = load_keys(path)["a"]
    ends = [key.expires for key in holder.keys]
    assert code == 0
    assert ends == [datetime(2099, 12, 31, 23, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC), None]
    assert bytes.fromhex(holder.keys[2].sha256) == digest_of(out.strip())
    assert holder.sentences_per_second == 5


def test_set_changes_limits_and_takes_them_away(keys, path):
    keys("add", "a", "--sentences-in-flight", "5", "--note", "x")
    keys("set", "a", "--sentences-per-second", "2.5")
    holder = load_keys(path)["a"]
    assert (holder.sentences_in_flight, holder.sentences_per_second, holder.note) == (5, 2.5, "x")
    assert keys("set", "a", "--sentences-in-flight", "none", "--note", "") == (0, "changed a\n", "")
    holder = load_keys(path)["a"]
    assert (holder.sentences_in_flight, holder.sentences_per_second, holder.note) == (None, 2.5, "")


def test_list_shows_the_beginnings_of_hashes(keys, path):
    _, out, _ = keys("add", "b", "--sentences-in-flight", "5", "--note", "x")
    _, newer, _ = keys("rotate", "b", "--keep", "2001-01-01T00:00:00Z")
    _, other, _ = keys("add", "a")
    digests = [digest_of(token.strip()).hex() for token in (other, out, newer)]
    code, out, _ = keys("list")
    assert code == 0
    assert out.splitlines() == [
        "a",
        f"    {digests[0][:12]}  does not expire",
        "b  5 sentences in flight  (x)",
        f"    {digests[1][:12]}  expired 2001-01-01 00:00 UTC",
        f"    {digests[2][:12]}  does not expire",
    ]


def test_remove_takes_a_key_or_a_name(keys, path):
    _, out, _ = keys("add", "a")
    keys("add", "a")
    keys("add", "b")
    assert keys("remove", "b", "")[0] == 1  # such as a variable that is not set
    assert keys("remove", "a", digest_of(out.strip()).hex()[:8])[1] == "removed a key of a\n"
    assert len(load_keys(path)["a"].keys) == 1
    assert keys("remove", "a")[1] == "removed a, with 1 keys\n"
    assert list(load_keys(path)) == ["b"]


@pytest.mark.parametrize(
    ("argv", "code", "problem"),
    [
        (["add"], 2, "the following arguments are required: NAME"),
        (["add", "a b"], 1, "'a b' is no name of a holder"),
        (["add", "tl_" + "0" * 64], 1, "a name looks like a key"),
        (["add", "a", "--expires", "soon"], 2, "--expires: 'soon' is no time"),
        (["add", "a", "--expires", "2030-01-01T00:00:00"], 2, "is no time"),
        (["add", "a", "--expires", "999999d"], 0, ""),
        (["add", "a", "--expires", "2001-01-01T00:00:00Z"], 2, "--expires: this time is over"),
        (["add", "a", "--expires", "9999-12-31T23:59:59-12:00"], 2, "is no time"),
        (["add", "a", "--expires", "0001-01-01T00:00:00+12:00"], 2, "is no time"),
        (["add", "a", "--sentences-in-flight", "0"], 2, "--sentences-in-flight: input should be greater"),
        (["add", "a", "--sentences-in-flight", "x"], 2, "--sentences-in-flight: 'x' is no number"),
        (["add", "a", "--sentences-per-second", "nan"], 2, "--sentences-per-second: "),
        (["add", "a", "--note", "n" * 201], 2, "--note: string should have at most 200 characters"),
        (["rotate", "a"], 2, "--keep"),
        (["rotate", "a", "--keep", "1d"], 1, "a has no key yet; translane keys add makes one"),
        (["set", "a", "--note", "x"], 1, "there is no holder a"),
        (["set", "a"], 2, "set needs at least one of --sentences-in-flight, --sentences-per-second, --note"),
        (["remove", "a"], 1, "there is no holder a"),
        (["list", "tl_" + "0" * 64], 2, "unknown argument tl_…"),
        (["no"], 2, "is needed, not 'no'"),
        ([], 2, "COMMAND"),
        (["list"], 1, "it cannot be read: No such file"),
        (["add", "a", "--file", "/no/keys.toml"], 1, "it cannot be written: No such file"),
    ],
)
def test_mistakes_are_one_sentence(keys, path, argv, code, problem):
    found, out, err = keys(*argv)
    assert found == code
    if code:
        assert problem in err
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("translane keys: ")
        assert not path.exists()


def test_a_holder_has_a_bounded_number_of_keys(keys, path):
    for _ in range(MOST_KEYS_OF_A_HOLDER):
        assert keys("add", "a")[0] == 0
    code, out, err = keys("add", "a")
    assert (code, out) == (1, "")
    assert "a has 16 keys, and no more are accepted" in err


def test_rotation_goes_on_when_older_keys_have_expired(keys, path):
    keys("add", "a")
    for _ in range(MOST_KEYS_OF_A_HOLDER):
        assert keys("rotate", "a", "--keep", "2001-01-01T00:00:00Z")[0] == 0
    assert len(load_keys(path)["a"].keys) == 2


def test_a_wrong_file_is_not_overwritten(keys, path):
    path.write_text("[a")
    assert keys("add", "b")[0] == 1
    assert path.read_text() == "[a"


def test_a_write_that_fails_leaves_the_file(keys, path, monkeypatch):
    keys("add", "a")
    before = path.read_text()
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
    code, out, err = keys("add", "b")
    assert (code, out) == (1, "")
    assert err.endswith("it cannot be written: No space left on device\n")
    assert path.read_text() == before
    assert [each.name for each in path.parent.iterdir()] == ["keys.toml"]


def test_the_file_must_be_named(capsys):
    assert run(["list"], {}) == 2
    assert capsys.readouterr().err == "translane keys: --file is required (or TRANSLANE_KEYS_FILE)\n"


def test_changes_at_the_same_time_all_stay(path):
    threads = [
        threading.Thread(target=run, args=(["add", f"n{number}"], {"TRANSLANE_KEYS_FILE": str(path)}))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(load_keys(path)) == 8


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("argv", "told"), [(["add", "a"], "; the new key is in the file, and nobody has seen it"), (["list"], "")]
)
def test_an_answer_that_cannot_be_written_is_told(path, argv, told):
    assert run(["add", "b"], {"TRANSLANE_KEYS_FILE": str(path)}) == 0
    command = [sys.executable, "-m", "translane", "keys", *argv, "--file", str(path)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    problem = f"translane keys: the answer cannot be written: No space left on device{told}\n"
    assert (ended.returncode, ended.stderr) == (1, problem)


def test_no_key_is_made_that_nobody_would_see(path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["add", "a"], {"TRANSLANE_KEYS_FILE": str(path)}) == 1
    assert not path.exists()
