"""TLS, mutual TLS and tokens: what is trusted and shown, what is refused, and files that are replaced."""

import os
import re
import socket
import threading
from pathlib import Path

import grpc
import pytest

from fakes.translation_server import FakeServer, answer, answer_to, fails, reason
from helpers.certificates import Authority
from helpers.client_command import Command
from helpers.refusals import refusal
from translane import Client, Connection, Unavailable


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def message_of(connect, address: str, **options) -> str:
    message = refusal(Unavailable, connect(address, **options).translate, "a")
    assert message.startswith(f"cannot reach {address}: ")
    return message.removeprefix(f"cannot reach {address}: ")


def test_mutual_tls(connect, authority, tmp_path):
    strangers = Authority(tmp_path, "strangers")
    own, strange = authority.files("client"), strangers.files("client", stem="strange")
    with FakeServer().start(authority.server_credentials("127.0.0.1", clients=authority)) as server:
        client = connect(server.address, ca=authority.file, cert=own.cert, key=own.key)
        assert client.translate("a").text == "<a>"
        wants = "it closed the connection at once; does it want a certificate of the client?"
        for files in ({}, {"cert": strange.cert, "key": strange.key}):
            assert message_of(connect, server.address, ca=authority.file, **files) in (wants, "the connection was lost")


@pytest.mark.parametrize("several", [False, True])
def test_a_certificate_that_is_refused_is_told_at_once(connect, time, authority, tmp_path, several):
    def told(names: list[str], trusted: Authority, **settings) -> str:
        with FakeServer().start(authority.server_credentials(*names, **settings)) as server:
            address = f"{server.address},{server.address.replace('127.0.0.1', '127.0.0.2')}"
            client = connect(address if several else server.address, ca=trusted.file)
            return refusal(Unavailable, client.translate, "a").rpartition(": ")[2]

    strangers = Authority(tmp_path, "strangers")
    untrusted = "its TLS certificate is not signed by an authority that the client trusts"
    assert told(["127.0.0.1"], strangers) in (untrusted, "connection refused")
    assert told(["example.org"], authority) in ("its TLS certificate is for another name", "connection refused")
    assert told(["127.0.0.1"], authority, expired=True) in ("its TLS certificate has expired", "connection refused")
    if not several:  # of several servers, gRPC tells one failure
        assert time.pauses == []


def test_the_name_that_servers_have(connect, authority):
    with FakeServer().start(authority.server_credentials("translane.example")) as server:
        client = connect(server.address, ca=authority.file, server_name="translane.example")
        assert client.translate("a").text == "<a>"


def test_one_side_without_tls(connect, authority):
    with FakeServer().start() as server:
        assert message_of(connect, server.address, ca=authority.file) == "it does not speak TLS"
    with FakeServer().start(authority.server_credentials("127.0.0.1")) as server:
        message = message_of(connect, server.address)
        assert message == "it closed the connection at once; does it want TLS?"
        # public authorities are trusted where none is named
        message = message_of(connect, server.address, tls=True)
        assert message == "its TLS certificate is not signed by an authority that the client trusts"


def test_new_certificates_are_taken_without_a_new_client(authority, tmp_path):
    others = Authority(tmp_path, "others")
    own = authority.files("client")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.pem)
    with (
        FakeServer().start(authority.server_credentials("127.0.0.1", clients=authority)) as old,
        FakeServer().start(others.server_credentials("127.0.0.1", clients=others)) as new,
        Client([old.address, new.address], ca=trusted, cert=own.cert, key=own.key) as client,
    ):
        release = threading.Event()
        old.always = lambda request, _: release.wait(60) and answer(request)
        under_way = threading.Thread(target=lambda: answers.append(client.translate("long").text))
        answers: list[str] = []
        under_way.start()
        old.wait_for_requests(1)
        trusted.write_bytes(others.pem)
        others.files("client")  # in place of the old ones
        assert client.translate("a").text == "<a>"
        assert len(new.requests) == 1
        release.set()
        under_way.join()
        assert answers == ["<long>"]


def test_files_that_do_not_fit_together_yet_change_nothing(authority, tmp_path):
    own = authority.files("client")
    connection = Connection("example.org", ca=authority.file, cert=own.cert, key=own.key)
    next_pair = authority.files("client", stem="next")
    own.cert.write_bytes(next_pair.cert.read_bytes())
    assert connection.generation() == 0
    own.key.write_bytes(next_pair.key.read_bytes())
    assert connection.generation() == 1
    assert connection.generation() == 1
    authority.file.unlink()
    assert connection.generation() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ca": "absent.pem"}, "ca: absent.pem cannot be read: No such file or directory"),
        ({"ca": "."}, "ca: . is not a file"),
        ({"ca": "pipe"}, "ca: pipe is not a file"),
        ({"ca": "text"}, "ca: text holds no sound certificate in PEM"),
        ({"ca": "empty"}, "ca: empty holds no sound certificate in PEM"),
        ({"ca": "long"}, "ca: long is longer than 1048576 bytes"),
        ({"cert": "own.pem"}, "cert, key: a client certificate needs both"),
        ({"cert": "own.pem", "key": "other.key"}, "cert, key: other.key is not the key of own.pem"),
        (
            {"cert": "text", "key": "own.key"},
            "cert, key: text holds no sound certificate, or own.key no sound key, in PEM",
        ),
        (
            {"cert": "own.pem", "key": "encrypted"},
            "key: encrypted is encrypted; a key without a password is needed",
        ),
        ({"ca": "ca.pem", "tls": False}, "tls, ca: without TLS there are no certificates"),
        ({"token": "a", "token_file": "text"}, "token, token_file: they exclude each other"),
        ({"token_file": "absent"}, "token_file: absent cannot be read: No such file or directory"),
        (
            {"ca": "ca.pem", "credentials": grpc.local_channel_credentials()},
            "credentials, ca: credentials stand alone",
        ),
    ],
)
def test_wrong_settings_are_told_when_the_client_is_made(authority, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    authority.files("client")
    authority.files("client", stem="other")
    os.mkfifo("pipe")
    Path("text").write_text("no certificate, 我")
    Path("empty").touch()
    Path("long").write_bytes(b"x" * (2**20 + 1))
    Path("encrypted").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n-----END ENCRYPTED PRIVATE KEY-----\n")
    assert refusal(ValueError, Client, "example.org", **options) == message


@pytest.mark.parametrize(
    "argv",
    [
        *(["translate", "a"], ["score", "a", "b"], ["models"]),
        ["bench", "--clients", "2", "--duration", "100ms", "--warm-up", "0"],
    ],
)
def test_every_command_speaks_tls_and_shows_the_token(authority, argv):
    with FakeServer().start(authority.server_credentials("127.0.0.1")) as server:
        keys, command = Keys(server), Command(server.address)
        command.environ["TRANSLANE_CLIENT_TOKEN"] = "secret"
        assert command(*argv, "--ca", str(authority.file)) == 0
        command.environ["TRANSLANE_CLIENT_CA"] = str(authority.file)
        command.environ["TRANSLANE_CLIENT_TLS"] = "true"
        assert command(*argv) == 0
        assert set(keys.shown) == ({"Bearer secret"} if argv != ["models"] else set())


# Tokens: how they travel, where they may not, and files that are replaced.


class Keys:
    """What callers showed to a server that asks for keys."""

    def __init__(self, server: FakeServer) -> None:
        self.shown: list[str] = []
        server.always = self.answer

    def answer(self, request, context: grpc.ServicerContext):
        self.shown.append(str(dict(context.invocation_metadata()).get("authorization", "")))
        return answer_to(request)


@pytest.fixture
def keys(server):
    return Keys(server)


def test_each_call_shows_the_token(server, keys, connect):
    client = connect(server.address, token="tl_abc-123")
    client.translate("a")
    assert "".join(client.translate_stream("b")) == "<b>"
    client.score([("a", "b")])
    assert keys.shown == ["Bearer tl_abc-123"] * 3
    connect(server.address).translate("a")
    assert keys.shown[-1] == ""


def test_a_file_is_read_again_when_it_changes(server, keys, connect, tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    client = connect(server.address, token_file=file)
    client.translate("a")
    (tmp_path / "new").write_text("second")
    (tmp_path / "new").replace(file)
    client.translate("a")
    file.write_text("")  # somebody is writing it
    client.translate("a")
    file.unlink()
    client.translate("a")
    file.write_text("third")
    client.translate("a")
    assert keys.shown == [f"Bearer {token}" for token in ("first", "second", "second", "second", "third")]


def test_an_attempt_after_a_failure_shows_the_token_of_now(server, keys, connect, tmp_path):
    file = tmp_path / "token"
    file.write_text("first")

    def restarts(request, context: grpc.ServicerContext):
        file.write_text("second")
        return fails(grpc.StatusCode.UNAVAILABLE)(request, context)

    server.script.append(restarts)
    connect(server.address, token_file=file).translate("a")
    assert keys.shown == ["Bearer second"]


def test_a_token_within_a_machine_takes_no_proxy(server, keys, connect, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("grpc_proxy", "https_proxy", "no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        connect(server.address, token="secret", timeout=10).translate("a")
        assert keys.shown == ["Bearer secret"]
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has called it
            proxy.accept()


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1:1", "0.0.0.0:1", "[fd00::1]:1", "localhost.org:1", "dns:///example.org", "localhost,example.org"],
)
def test_a_token_does_not_travel_over_plain_text(address, tmp_path):
    with pytest.raises(ValueError, match=r"^token: a token over plain text can be read on its way to ") as caught:
        Client(address, token="secret")
    assert "secret" not in str(caught.value)
    for local in ("localhost", "127.9.9.9:1", "[::1]:1", "unix:/a", "unix-abstract:a"):
        Client(local, token="secret").close()
    Client(address).close()
    Client(address, token="secret", tls=True).close()
    Client(address, token="secret", tls=False).close()  # a mesh encrypts
    Client(address, token="secret", credentials=grpc.local_channel_credentials()).close()


@pytest.mark.parametrize("token", ["", " ", "two words", "line\nbreak", "schlüssel", "x" * 4097, "a=b"])
def test_what_can_be_no_token(token, tmp_path):
    file = tmp_path / "token"
    file.write_text(token)
    for options, begins in (({"token": token}, "token: it"), ({"token_file": file}, f"token_file: {file}")):
        with pytest.raises(ValueError, match=f"^{re.escape(begins)} holds no token: ") as caught:
            Client("localhost", **options)
        assert token.strip() == "" or token not in str(caught.value)


def test_the_command_has_tokens_from_files_and_the_environment(keys, command, tmp_path):
    file = tmp_path / "token"
    file.write_text("from-file")
    for argv, environ, token in (
        ([], {"TRANSLANE_CLIENT_TOKEN": "from-environment"}, "from-environment"),
        (["--token-file", str(file)], {}, "from-file"),
        ([], {"TRANSLANE_CLIENT_TOKEN": "", "TRANSLANE_CLIENT_TOKEN_FILE": str(file)}, "from-file"),
    ):
        command.environ |= environ
        assert command("translate", "a", *argv) == 0
        assert keys.shown[-1] == f"Bearer {token}"


@pytest.mark.parametrize("argv", [["translate", "a"], ["translate", "--stream", "a"], ["score", "a", "b"], ["bench"]])
def test_the_command_says_where_a_key_goes(server, command, argv):
    server.always = fails(grpc.StatusCode.UNAUTHENTICATED, "a key is needed", reason("MISSING_KEY"))
    assert command(*argv) == 1
    expected = f"translane {argv[0]}: a key is needed (--token-file FILE, or TRANSLANE_CLIENT_TOKEN)"
    assert command.err.splitlines()[0].startswith(expected)


def test_the_command_names_its_flags_and_variables():
    command = Command("example.org")
    assert command("models", "--no-tls", "--ca", "a") == 1
    command.environ["TRANSLANE_CLIENT_TOKEN"] = "secret"
    assert command("translate", "a") == 1
    assert command.err == (
        "translane models: --tls, --ca: without TLS there are no certificates\n"
        "translane translate: TRANSLANE_CLIENT_TOKEN: a token over plain text can be read on its way to"
        " example.org:50051; --tls encrypts it, and --no-tls says that the network does\n"
    )
