"""Certificates and keys through real sockets: who is refused, and what changes while calls run."""

import asyncio
import itertools
import logging
import ssl
from collections import Counter
from functools import partial
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fakes.serving import serving
from helpers.commands import keys as run_keys
from helpers.commands import serve
from helpers.failures import ended, failed
from helpers.http_calls import request as http_request
from helpers.http_calls import until
from helpers.key_files import bearer, holder
from helpers.ports import free_port
from helpers.tiny_bundle import TINY
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_server.access.keys import digest_of, make_token, write_keys
from translane_server.app import healthcheck, server
from translane_server.core.file_changes import follow

pytest.importorskip("trustme")

from helpers.certificates import ServerFiles, replace


@pytest.fixture(autouse=True)
def _files_are_looked_at_often(monkeypatch):
    monkeypatch.setattr(server, "follow", partial(follow, interval=0.02))


class Secrets(ServerFiles):
    """The files of a server: its certificate, and the keys of its callers."""

    def __init__(self, folder, authority):
        super().__init__(folder, authority)
        self.keys = folder / "keys.toml"

    def write_keys(self, **holders):
        replace(self.keys, write_keys(holders).encode())

    @property
    def tls(self):
        return {"tls_cert": self.cert, "tls_key": self.key}


@pytest.fixture
def secrets(tmp_path, authority):
    return Secrets(tmp_path, authority)


@pytest.fixture
def tokens():
    return [make_token() for _ in range(4)]


def secure(running, authority, caller=None):
    own = (caller.private_key_pem.bytes(), caller.cert_chain_pems[0].bytes()) if caller else ()
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes(), *own)
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(f"localhost:{running.server.port}", credentials, options=options)


def stub_of(channel):
    return translation_pb2_grpc.TranslationServiceStub(channel)


async def test_watchers_without_a_key_leave_room_for_keys(secrets, tokens):
    secrets.write_keys(a=holder(tokens[0]))
    async with serving(keys_file=secrets.keys, max_calls=4, caller_header="caller") as running:
        watch = health_pb2_grpc.HealthStub(running.channel).Watch
        watchers = [watch(health_pb2.HealthCheckRequest(), metadata=[("caller", str(each))]) for each in range(4)]
        answers = await asyncio.gather(*[each.read() for each in watchers], return_exceptions=True)
        assert sum(isinstance(each, grpc.aio.AioRpcError) for each in answers) == 2
        request = pb.TranslateRequest(texts=["abc"])
        assert await ended(running.stub.Translate(request, metadata=bearer(tokens[0]))) == "OK"
        for each in watchers:
            each.cancel()


def request(count=1, **fields):
    return pb.TranslateRequest(texts=["abc"] * count, **fields)


def allowance_of(running, name):
    keys = running.server.keys
    assert keys is not None
    return keys._allowances[name]


async def test_mutual_tls_names_callers_by_their_certificates(secrets, authority):
    callers = authority.issue_cert("team-a@example.org"), authority.issue_cert(common_name="team-b")
    async with serving(**secrets.tls, tls_client_ca=secrets.ca) as running:
        running.dispatcher.check_room = Mock(wraps=running.dispatcher.check_room)
        for caller in callers:
            async with secure(running, authority, caller) as channel:
                assert await ended(stub_of(channel).Translate(request())) == "OK"
        named = [call.args[1] for call in running.dispatcher.check_room.call_args_list]
    assert list(dict.fromkeys(named)) == ["team-a@example.org", "team-b"]


async def test_what_needs_a_key(secrets, tokens):
    """Reflection and unknown methods need a key; health does not. Golden requests cover the other methods."""
    secrets.write_keys(a=holder(tokens[0]))
    async with serving(keys_file=secrets.keys) as running:
        health = health_pb2_grpc.HealthStub(running.channel)
        reflection = reflection_pb2_grpc.ServerReflectionStub(running.channel)
        listing = [reflection_pb2.ServerReflectionRequest(list_services="")]
        unknown = running.channel.unary_unary("/no.Service/Method", None, None)
        for metadata, reflected, found in (
            ((), "final UNAUTHENTICATED(MISSING_KEY)", "final UNAUTHENTICATED(MISSING_KEY)"),
            (bearer(tokens[1]), "final UNAUTHENTICATED(UNKNOWN_KEY)", "final UNAUTHENTICATED(UNKNOWN_KEY)"),
            (bearer(tokens[0]), "OK", "final UNIMPLEMENTED(METHOD_NOT_FOUND)"),
        ):
            assert await ended(reflection.ServerReflectionInfo(iter(listing), metadata=metadata).read()) == reflected
            assert await ended(unknown(b"", metadata=metadata)) == found
        assert await ended(health.Check(health_pb2.HealthCheckRequest())) == "OK"
        assert await ended(health.Watch(health_pb2.HealthCheckRequest()).read()) == "OK"
        assert running.value("translane_rejected_total", reason="MISSING_KEY") == 2
        assert running.value("translane_open_calls") == 1  # the watch


async def test_a_call_is_refused_before_its_message_is_received(secrets, tokens):
    secrets.write_keys(a=holder(tokens[0]))
    async with serving(keys_file=secrets.keys) as running:
        method: Any = running.channel.stream_unary("/translane.v1.TranslationService/Translate", None, None)
        call = method()
        assert (await failed(call)).reason == "MISSING_KEY"  # nothing is ever written


async def translates(channel, token, *, expected=True):
    return (await ended(stub_of(channel).Translate(request(), metadata=bearer(token))) == "OK") is expected


async def newly(running, authority, token, **expected):
    """Whether a call over a new connection is answered."""
    async with secure(running, authority) as channel:
        return await translates(channel, token, **expected)


async def shows(running, certificate):
    """Whether the server shows this certificate, in DER, to a new connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", running.server.port, ssl=context)
    try:
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True) == certificate
    finally:
        writer.close()


@pytest.mark.slow
async def test_certificates_and_keys_are_replaced_under_load_without_a_failed_call(secrets, authority, tokens):
    secrets.write_keys(a=holder(tokens[0]))
    current = tokens[0]
    outcomes: Counter[bool] = Counter()
    async with serving(**secrets.tls, keys_file=secrets.keys, rows=16) as running:

        async def ask(*, lasting):
            """Call for three seconds, over one connection or over a new one for each call."""
            end = asyncio.get_running_loop().time() + 3
            async with secure(running, authority) as channel:
                while asyncio.get_running_loop().time() < end:
                    call = translates(channel, current) if lasting else newly(running, authority, current)
                    outcomes[await call] += 1

        callers = [asyncio.create_task(ask(lasting=lasting)) for lasting in (True, True, False, False)]
        certificates = set()
        for before, after in itertools.pairwise(tokens):
            certificate = secrets.write(authority)
            certificates.add(certificate)
            await until(partial(shows, running, certificate))
            secrets.write_keys(a=holder(before, after))
            await until(partial(newly, running, authority, after))
            current = after
            await asyncio.sleep(0.2)  # calls with the key before come in
            secrets.write_keys(a=holder(after))
        await asyncio.gather(*callers)
        assert len(certificates) == 3
        assert set(outcomes) == {True}
        assert outcomes[True] > 100
        await until(partial(newly, running, authority, tokens[0], expected=False))


async def test_a_key_is_full_for_itself_alone_until_its_call_ends(secrets, tokens):
    secrets.write_keys(full=holder(tokens[0], sentences_in_flight=4), other=holder(tokens[1], sentences_in_flight=4))
    async with serving(keys_file=secrets.keys, key_metrics=True, rows=8) as running:
        full, other = (allowance_of(running, name) for name in ("full", "other"))
        running.backend.hold()
        call = running.stub.Translate(request(4), metadata=bearer(tokens[0]))
        await until(lambda: full.in_flight == 4)
        refused = running.stub.Translate(request(), metadata=bearer(tokens[0]))
        assert await ended(refused) == "RESOURCE_EXHAUSTED(TOO_MANY_SENTENCES)"
        answered = asyncio.ensure_future(ended(running.stub.Translate(request(4), metadata=bearer(tokens[1]))))
        await until(lambda: other.in_flight == 4)
        call.cancel()
        await until(lambda: full.in_flight == 0)
        running.backend.release()
        assert await answered == "OK"
        assert other.in_flight == 0
        reason = "TOO_MANY_SENTENCES"
        assert running.value("translane_key_rejected_total", key="full", reason=reason) == 1
        assert running.value("translane_key_rejected_total", key="other", reason=reason) is None
        assert running.value("translane_key_sentences_total", key="other") == 4


async def test_hostile_headers_cost_one_line_and_no_memory(secrets, tokens, caplog):
    secrets.write_keys(a=holder(tokens[0]))
    caplog.set_level(logging.DEBUG)
    async with serving(keys_file=secrets.keys, log_level="debug") as running:
        caplog.clear()
        headers = [
            "Bearer " + "x" * 8000, "Bearer " * 1000, tokens[0], f"Basic {tokens[0]}", f"Bearer {tokens[0]}{tokens[0]}",
            f"Bearer {tokens[1]}", "", " ", "Bearer \x7e\x7e",
        ]  # fmt: skip
        for header in headers * 20:
            found = await ended(running.stub.Translate(request(), metadata=(("authorization", header),)))
            assert found in ("final UNAUTHENTICATED(MISSING_KEY)", "final UNAUTHENTICATED(UNKNOWN_KEY)")
        assert await ended(running.stub.Translate(request(), metadata=(("authorization", "x" * 50_000),))) != "OK"
        lines = [record for record in caplog.records if record.levelno > logging.DEBUG]
        assert len(lines) == 1
        assert await ended(running.stub.Translate(request(), metadata=bearer(tokens[0]))) == "OK"
        everything = " ".join(str(vars(record)) for record in caplog.records)
        assert "request" in everything
        assert not any(token[3:30] in everything for token in tokens)


async def test_the_metrics_port_has_the_certificate_too(secrets, authority, another):
    async with serving(**secrets.tls, metrics_tls=True) as running:

        async def scrape(trusted):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusted.configure_trust(context)
            return (await http_request(running.server.metrics_port, "GET", "/metrics", tls=context)).body

        assert b"translane_open_calls" in await scrape(authority)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await scrape(another)


async def test_the_health_check_works_beside_mutual_tls(secrets, monkeypatch):
    health_port = free_port()
    environ = {"TRANSLANE_HEALTH_PORT": str(health_port)}
    async with serving(**secrets.tls, tls_client_ca=secrets.ca, health_port=health_port, opened=False) as running:
        assert await asyncio.to_thread(healthcheck.problem, environ) == f"127.0.0.1:{health_port}: NOT_SERVING"
        await running.open()
        assert await asyncio.to_thread(healthcheck.problem, environ) is None
        async with grpc.aio.insecure_channel(f"127.0.0.1:{health_port}") as channel:
            assert await ended(stub_of(channel).Translate(request())) == "final UNIMPLEMENTED(METHOD_NOT_FOUND)"
        for name, value in (environ | {"http_proxy": "http://127.0.0.1:1"}).items():
            monkeypatch.setenv(name, value)
        assert await asyncio.to_thread(healthcheck.main) == 0
    assert await asyncio.to_thread(healthcheck.problem, environ) is not None


@pytest.mark.parametrize(
    ("host", "has", "lines"),
    [
        ("127.0.0.1", [], []),
        ("localhost", [], []),
        ("0.0.0.0", [], ["listening on 0.0.0.0 without TLS (--tls-cert) and keys (--keys-file)"]),
        ("0.0.0.0", ["tls"], ["listening on 0.0.0.0 without keys (--keys-file)"]),
        ("0.0.0.0", ["keys"], ["listening on 0.0.0.0 without TLS (--tls-cert)"]),
        ("0.0.0.0", ["tls", "keys"], []),
        ("0.0.0.0", ["tls", "callers"], []),
    ],
)
async def test_a_server_that_others_reach_says_what_it_lacks(secrets, caplog, host, has, lines):
    secrets.write_keys()
    kinds = {"tls": secrets.tls, "keys": {"keys_file": secrets.keys}, "callers": {"tls_client_ca": secrets.ca}}
    async with serving(host=host, **{name: value for kind in has for name, value in kinds[kind].items()}):
        pass
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.partition(": ")[0] for line in warnings] == lines


@pytest.fixture
def _log_stays(monkeypatch):
    monkeypatch.setattr("translane_server.app.lifetime.configure_logging", lambda _format, _level: None)


def check(capsys, *argv):
    code = serve(["--check", str(TINY), *map(str, argv)], {})
    return code, capsys.readouterr()


@pytest.mark.usefixtures("_log_stays")
def test_check_tells_what_it_found(secrets, tokens, capsys):
    secrets.write_keys(a=holder(tokens[0]), b=holder(*tokens[1:3]))
    argv = ["--tls-cert", secrets.cert, "--tls-key", secrets.key, "--keys-file", secrets.keys]
    code, said = check(capsys, *argv, "--tls-client-ca", secrets.ca)
    assert (code, said.err) == (0, "")
    _, certificate, callers, keys, model = said.out.splitlines()
    assert "for localhost, 127.0.0.1; valid until " in certificate
    assert str(secrets.ca) in callers
    assert keys == f"keys {secrets.keys}: holders 2, keys 3, expired keys 0"
    assert model.endswith("files are those that were exported")
    assert not any(token[3:] in said.out for token in tokens)


@pytest.mark.usefixtures("_log_stays")
def test_check_warns_of_what_the_machine_does_not_have(capsys, monkeypatch):
    monkeypatch.setattr("translane_server.models.build.available_memory", lambda: 1_000_000)
    code, said = check(capsys, "--threads=200")
    warnings = [line for line in said.out.splitlines() if line.startswith("warning: ")]
    assert code == 0
    assert [("200 threads" in line, "MB are allowed" in line) for line in warnings] == [(True, False), (False, True)]


@pytest.mark.usefixtures("_log_stays")
@pytest.mark.parametrize(
    ("file", "content", "flags", "named"),
    [
        ("key", "", [], "it is no private key in PEM"),
        ("keys", "[", [], "keys.toml"),
        ("keys", "", [], "nobody has a key that is valid"),
        ("keys", None, ["--models=none"], "none"),
        ("keys", None, ["--tls-client-ca=none"], "none"),
    ],
)
def test_check_fails_where_a_server_would_not_start(secrets, tokens, capsys, file, content, flags, named):
    argv = ["--tls-cert", secrets.cert, "--tls-key", secrets.key, "--keys-file", secrets.keys]
    secrets.write_keys(a=holder(tokens[0]))
    if content is not None:
        getattr(secrets, file).write_text(content)
    code, said = check(capsys, *argv, *flags)
    assert code in (1, 2)
    assert said.err.startswith("translane serve: ")
    assert named in said.err
    assert said.err.count("\n") == 1


async def test_keys_of_the_command_open_the_server(secrets, capsys):
    environ = {"TRANSLANE_KEYS_FILE": str(secrets.keys)}

    def keys(*argv):
        assert run_keys(argv, environ) == 0
        return capsys.readouterr().out.splitlines()

    (token,) = keys("add", "team-a", "--sentences-in-flight", "9")
    async with serving(keys_file=secrets.keys) as running:
        works = partial(translates, running.channel)
        assert await works(token)
        (newer,) = keys("rotate", "team-a", "--keep", "1h")
        await until(partial(works, newer))
        assert await works(token)
        keys("remove", "team-a", digest_of(token).hex()[:12])
        await until(partial(works, token, expected=False))
        assert await works(newer)
