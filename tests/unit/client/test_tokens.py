"""Tokens: how they travel, where they may not, and files that are replaced."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from unit.client.fake_server import FakeServer, answer_to, fails, reason

from helpers.certificates import Authority
from helpers.client_command import Command
from translane import Client


class Keys:
    """What callers showed to a server that asks for keys."""

    def __init__(self, server: FakeServer) -> None:
        self.shown: list[str] = []
        server.always = self.answer

    def answer(self, request, context: grpc.ServicerContext):
        self.shown.append(str(dict(context.invocation_metadata()).get("authorization", "")))
        return answer_to(request)


@pytest.fixture
def keys(server: FakeServer) -> Keys:
    return Keys(server)


def test_each_call_shows_the_token(server: FakeServer, keys: Keys, connect):
    client = connect(server.address, token="tl_abc-123")
    client.translate("a")
    assert "".join(client.translate_stream("b")) == "<b>"
    client.score([("a", "b")])
    assert keys.shown == ["Bearer tl_abc-123"] * 3
    connect(server.address).translate("a")
    assert keys.shown[-1] == ""


def test_a_file_is_read_again_when_it_changes(server: FakeServer, keys: Keys, connect, tmp_path: Path):
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


def test_an_attempt_after_a_failure_shows_the_token_of_now(server: FakeServer, keys: Keys, connect, tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("first")

    def restarts(request, context: grpc.ServicerContext):
        file.write_text("second")
        return fails(grpc.StatusCode.UNAVAILABLE)(request, context)

    server.script.append(restarts)
    connect(server.address, token_file=file).translate("a")
    assert keys.shown == ["Bearer second"]


def test_a_token_within_a_machine_takes_no_proxy(server: FakeServer, keys: Keys, connect, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("grpc_proxy", "https_proxy", "no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        connect(server.address, token="secret", timeout=10).translate("a")
        assert keys.shown == ["Bearer secret"]
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has called it
            proxy.accept()


@pytest.mark.parametrize("address", ["10.0.0.1:1", "dns:///example.org", "localhost,example.org"])
def test_a_token_does_not_travel_over_plain_text(address: str, tmp_path: Path):
    with pytest.raises(ValueError, match=r"^token: a token over plain text can be read on its way to ") as caught:
        Client(address, token="secret")
    assert "secret" not in str(caught.value)
    Client("localhost", token="secret").close()
    Client(address).close()
    Client(address, token="secret", tls=True).close()
    Client(address, token="secret", tls=False).close()  # a mesh encrypts
    Client(address, token="secret", credentials=grpc.local_channel_credentials()).close()


@pytest.mark.parametrize("token", ["", " ", "two words", "line\nbreak", "schlüssel", "x" * 4097, "a=b"])
def test_what_can_be_no_token(token: str, tmp_path: Path):
    file = tmp_path / "token"
    file.write_text(token)
    for options, begins in (({"token": token}, "token: it"), ({"token_file": file}, f"token_file: {file}")):
        with pytest.raises(ValueError, match=f"^{re.escape(begins)} holds no token: ") as caught:
            Client("localhost", **options)
        assert token.strip() == "" or token not in str(caught.value)


def test_wrong_settings(tmp_path: Path):
    with pytest.raises(ValueError, match=r"^token, token_file: they exclude each other$"):
        Client("localhost", token="a", token_file=tmp_path)
    with pytest.raises(ValueError, match=r"^token_file: .* cannot be read: No such file or directory$"):
        Client("localhost", token_file=tmp_path / "absent")


@pytest.fixture
def shown(server: FakeServer, keys: Keys, command: Command) -> Callable[..., str]:
    """The key that a command shows."""

    def run(*argv: str, **environ: str) -> str:
        command.environ |= environ
        assert command("translate", "a", *argv) == 0
        return keys.shown[-1]

    return run


def test_the_command_has_tokens_from_files_and_the_environment(shown, tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("from-file")
    assert shown(TRANSLANE_CLIENT_TOKEN="from-environment") == "Bearer from-environment"
    assert shown("--token-file", str(file)) == "Bearer from-file"
    assert shown(TRANSLANE_CLIENT_TOKEN="", TRANSLANE_CLIENT_TOKEN_FILE=str(file)) == "Bearer from-file"


@pytest.mark.parametrize("argv", [["translate", "a"], ["translate", "--stream", "a"], ["score", "a", "b"], ["bench"]])
def test_the_command_says_where_a_key_goes(server: FakeServer, command: Command, argv: list[str]):
    server.always = fails(grpc.StatusCode.UNAUTHENTICATED, "a key is needed", reason("MISSING_KEY"))
    assert command(*argv) == 1
    expected = f"translane {argv[0]}: a key is needed (--token-file FILE, or TRANSLANE_CLIENT_TOKEN)"
    assert command.err.splitlines()[0].startswith(expected)


def test_the_command_refuses_a_token_over_plain_text(command: Command):
    command.environ |= {"TRANSLANE_CLIENT_TOKEN": "secret", "TRANSLANE_CLIENT_SERVER": "example.org"}
    assert command("translate", "a") == 1
    assert command.err == (
        "translane translate: TRANSLANE_CLIENT_TOKEN: a token over plain text can be read on its way to"
        " example.org:50051; --tls encrypts it, and --no-tls says that the network does\n"
    )


def test_client_and_bench_show_the_token_over_mutual_tls(tmp_path: Path):
    authority = Authority(tmp_path)
    own = authority.files("client")
    with FakeServer().start(authority.server_credentials("127.0.0.1", clients=authority)) as server:
        keys, command = Keys(server), Command(server.address)
        with Client(server.address, token="secret", ca=authority.file, cert=own.cert, key=own.key) as client:
            client.translate("a")
        assert keys.shown == ["Bearer secret"]
        command.environ["TRANSLANE_CLIENT_TOKEN"] = "secret"
        argv = ["--clients", "2", "--duration", "100ms", "--warm-up", "0", "--ca", str(authority.file)]
        assert command("bench", *argv, "--cert", str(own.cert), "--key", str(own.key)) == 0
        assert set(keys.shown) == {"Bearer secret"}
