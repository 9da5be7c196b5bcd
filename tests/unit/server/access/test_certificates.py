import asyncio
import datetime
import logging
import socket
import ssl
import warnings

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import NameOID

trustme = pytest.importorskip("trustme")

from translane_server.access import certificates  # noqa: E402
from translane_server.access.certificates import Certificates  # noqa: E402
from translane_server.core.errors import CertificateError  # noqa: E402


class Files:
    """A certificate, its key and the authority of callers, as files."""

    def __init__(self, folder, authority, **options):
        self.cert, self.key, self.ca = folder / "server.crt", folder / "server.key", folder / "callers.crt"
        self.write(authority, **options)

    def write(self, authority, callers=None, **options):
        issued = authority.issue_cert("localhost", "127.0.0.1", **options)
        key = issued.private_key_pem.bytes()
        replace(self.cert, b"".join(part.bytes() for part in issued.cert_chain_pems))
        replace(self.key, key)
        replace(self.ca, (callers or authority).cert_pem.bytes())


def replace(path, content):
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def another():
    return trustme.CA()


@pytest.fixture
def files(tmp_path, authority):
    return Files(tmp_path, authority)


def settle(certificates):
    """Look twice, so that a change has stayed for one look."""
    certificates.refresh()
    certificates.refresh()


def test_knows_its_names_and_its_end(files):
    certificates = Certificates(files.cert, files.key)
    assert set(certificates.current.names) == {"localhost", "127.0.0.1"}
    assert certificates.current.expires.endswith("GMT")
    assert certificates.current.problem == ""


@pytest.mark.parametrize("name", ["cert", "key", "ca"])
def test_refuses_a_missing_file(files, name):
    getattr(files, name).unlink()
    with pytest.raises(CertificateError, match=rf"{getattr(files, name)}: it cannot be read: No such file"):
        Certificates(files.cert, files.key, files.ca)


def test_refuses_a_key_of_another_certificate(files, another):
    other = another.issue_cert("localhost").private_key_pem.bytes()
    files.key.write_bytes(other)
    with pytest.raises(CertificateError, match="it is not the key of the certificate"):
        Certificates(files.cert, files.key)


def self_signed(files, key, digest):
    """Write a certificate of `key` that signs itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    encoding = serialization.Encoding.PEM
    replace(files.cert, builder.sign(key, digest).public_bytes(encoding))
    plain = serialization.NoEncryption()
    replace(files.key, key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))


@pytest.mark.parametrize(
    ("key", "digest", "name"),
    [
        (ed25519.Ed25519PrivateKey.generate(), None, "Ed25519"),
        (ed448.Ed448PrivateKey.generate(), None, "Ed448"),
        (ec.generate_private_key(ec.SECP521R1()), hashes.SHA256(), "ECDSA with P-521"),
    ],
)
async def test_refuses_keys_that_grpc_does_not_take(files, key, digest, name, monkeypatch):
    self_signed(files, key, digest)
    with pytest.raises(CertificateError, match=f"its key is {name}, which gRPC does not take"):
        Certificates(files.cert, files.key)
    monkeypatch.setattr(certificates, "_NO_KEYS_OF_GRPC", {})
    try:
        assert not await is_taken_by_grpc(files)
    except RuntimeError as error:  # gRPC does not even begin with some keys
        assert "Failed to bind" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "key",
    [
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
    ],
    ids=["RSA", "P-256", "P-384"],
)
async def test_takes_the_keys_that_grpc_takes(files, key):
    self_signed(files, key, hashes.SHA256())
    assert await is_taken_by_grpc(files)


async def is_taken_by_grpc(files):
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", Certificates(files.cert, files.key).grpc_credentials())
    await server.start()
    try:
        credentials = grpc.ssl_channel_credentials(files.cert.read_bytes())
        options = [("grpc.ssl_target_name_override", "localhost")]
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
            try:
                await asyncio.wait_for(channel.unary_unary("/none", bytes, bytes)(b"", timeout=20), 30)
            except grpc.aio.AioRpcError as error:
                return error.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        await server.stop(0)


def test_refuses_an_encrypted_key(files):
    from cryptography.hazmat.primitives import serialization as s

    key = s.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(CertificateError, match="it is encrypted; the server has no passphrase for it"):
        Certificates(files.cert, files.key)


@pytest.mark.parametrize(
    "content", [b"", b"\0\xff" * 100, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_refuses_what_is_no_certificate(files, content):
    files.cert.write_bytes(content)
    with pytest.raises(CertificateError, match="it has no certificate in PEM"):
        Certificates(files.cert, files.key)


def test_refuses_what_is_no_key(files):
    files.key.write_bytes(b"no key")
    with pytest.raises(CertificateError, match="it is no private key in PEM"):
        Certificates(files.cert, files.key)


@pytest.mark.parametrize(("days", "problem"), [(-1, "it has expired, so callers refuse it")])
def test_warns_of_an_expired_certificate(files, authority, caplog, days, problem):
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    files.write(authority, not_before=end - datetime.timedelta(days=9), not_after=end)
    with caplog.at_level(logging.WARNING):
        certificates = Certificates(files.cert, files.key)
    assert certificates.current.problem == problem
    assert [problem in line for line in caplog.messages] == [True]


def test_keeps_the_certificate_before_when_the_new_one_is_wrong(files, authority, another, caplog):
    certificates = Certificates(files.cert, files.key)
    before = certificates.current.expires
    replace(files.cert, another.issue_cert("elsewhere").cert_chain_pems[0].bytes())
    caplog.clear()
    for _ in range(5):
        certificates.refresh()
    (line,) = caplog.messages
    assert line.endswith("the certificate before goes on")
    assert certificates.current.expires == before
    files.write(authority)
    settle(certificates)
    assert certificates.current.problem == ""


def test_reads_no_file_that_still_changes(files, another, caplog):
    certificates = Certificates(files.cert, files.key)
    caplog.clear()
    for size in range(5):
        files.cert.write_bytes(b"x" * size)
        certificates.refresh()
    assert caplog.messages == []


def test_keeps_the_certificate_before_when_files_change_while_they_are_read(files, authority, caplog, monkeypatch):
    certificates = Certificates(files.cert, files.key)
    files.write(authority)
    load = ssl.SSLContext.load_cert_chain

    def load_after_change(*arguments, **named):
        files.write(authority)
        load(*arguments, **named)

    caplog.clear()
    with monkeypatch.context() as patched:
        patched.setattr(ssl.SSLContext, "load_cert_chain", load_after_change)
        settle(certificates)
    assert [
        line.endswith("have changed while they were read; the certificate before goes on") for line in caplog.messages
    ] == [True]
    with caplog.at_level(logging.INFO):
        settle(certificates)
    assert "valid until" in caplog.messages[-1]


async def served_over_http(context):
    """Serve one line to each connection; yields the port."""

    async def answer(_reader, writer):
        writer.write(b"hello\n")
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)


async def fetch(port, client, name="localhost"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
    try:
        return await reader.read()
    finally:
        writer.close()


def client_of(authority, issuer=None, **attributes):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    for name, value in attributes.items():
        setattr(context, name, value)
    if issuer:
        issuer.issue_cert("caller@example.org").configure_cert(context)
    return context


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_http_follows_the_files(files, authority, another, name):
    certificates = Certificates(files.cert, files.key)
    server = await served_over_http(certificates.ssl_context())
    port = server.sockets[0].getsockname()[1]
    assert await fetch(port, client_of(authority), name) == b"hello\n"
    with pytest.raises(ssl.SSLCertVerificationError):
        await fetch(port, client_of(another), name)
    files.write(another)
    settle(certificates)
    assert await fetch(port, client_of(another), name) == b"hello\n"
    with pytest.raises(ssl.SSLCertVerificationError):
        await fetch(port, client_of(authority), name)
    server.close()


async def is_served(port, client):
    """Whether a caller is answered. With TLS 1.3, a caller may hear of the refusal after its own handshake."""
    try:
        return await fetch(port, client) == b"hello\n"
    except (ssl.SSLError, ConnectionError):
        return False


async def test_http_follows_the_authorities_of_callers(files, authority, another):
    certificates = Certificates(files.cert, files.key, files.ca)
    server = await served_over_http(certificates.ssl_context())
    port = server.sockets[0].getsockname()[1]
    issuers = (None, authority, another)
    assert [await is_served(port, client_of(authority, issuer)) for issuer in issuers] == [False, True, False]
    files.write(authority, callers=another)
    settle(certificates)
    assert [await is_served(port, client_of(authority, issuer)) for issuer in issuers] == [False, False, True]
    server.close()


def resume(port, client, session=None):
    """What the server sends to a connection that goes on with `session`, and the connection's session."""
    with (
        socket.create_connection(("localhost", port), timeout=10) as plain,
        client.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
    ):
        return connection.recv(100), connection.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_no_session_outlives_the_authority_of_its_caller(files, authority, another, version):
    certificates = Certificates(files.cert, files.key, files.ca)
    client = client_of(authority, authority, maximum_version=version)
    async with await served_over_http(certificates.ssl_context()) as server:
        port = server.sockets[0].getsockname()[1]
        sent, session = await asyncio.to_thread(resume, port, client)
        assert sent == b"hello\n"
        assert not session.has_ticket
        files.write(authority, callers=another)
        settle(certificates)
        try:
            sent, _ = await asyncio.to_thread(resume, port, client, session)
        except (ssl.SSLError, ConnectionError):
            sent = b""
        assert sent == b""


@pytest.fixture
async def grpc_port(files):
    """A gRPC server without services, whose unknown methods answer UNIMPLEMENTED."""
    certificates = Certificates(files.cert, files.key)
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", certificates.grpc_credentials())
    await server.start()
    yield certificates, port
    await server.stop(0)


async def answer_of(port, authority, issuer=None):
    caller = issuer.issue_cert("caller@example.org") if issuer else None
    own = (caller.private_key_pem.bytes(), caller.cert_chain_pems[0].bytes()) if caller else ()
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes(), *own)
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/a/b", None, None)(b"", timeout=5)
    return caught.value.code().name


async def test_grpc_follows_the_files(grpc_port, files, authority, another):
    certificates, port = grpc_port
    assert await answer_of(port, authority) == "UNIMPLEMENTED"
    assert await answer_of(port, another) == "UNAVAILABLE"
    files.write(another)
    settle(certificates)
    assert await answer_of(port, another) == "UNIMPLEMENTED"
    assert await answer_of(port, authority) == "UNAVAILABLE"


async def test_grpc_follows_the_authorities_of_callers(files, authority, another):
    certificates = Certificates(files.cert, files.key, files.ca)
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", certificates.grpc_credentials())
    await server.start()
    assert await answer_of(port, authority, authority) == "UNIMPLEMENTED"
    assert await answer_of(port, authority, another) == "UNAVAILABLE"
    assert await answer_of(port, authority) == "UNAVAILABLE"
    files.write(authority, callers=another)
    settle(certificates)
    assert await answer_of(port, authority, another) == "UNIMPLEMENTED"
    assert await answer_of(port, authority, authority) == "UNAVAILABLE"
    await server.stop(0)


def handshake(port, authority, version):
    """Try a handshake of exactly one version of TLS, with every cipher that OpenSSL has."""
    context = client_of(authority)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of old versions
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    try:
        with socket.create_connection(("127.0.0.1", port)) as plain:
            context.wrap_socket(plain, server_hostname="localhost").close()
    except (ssl.SSLError, ConnectionError):
        return False
    return True


VERSIONS = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


async def test_grpc_takes_tls_1_2_or_newer(grpc_port, authority):
    _, port = grpc_port
    done = [await asyncio.to_thread(handshake, port, authority, version) for version in VERSIONS]
    assert done == [False, False, True, True]


async def test_http_takes_tls_1_2_or_newer(files, authority):
    server = await served_over_http(Certificates(files.cert, files.key).ssl_context())
    port = server.sockets[0].getsockname()[1]
    done = [await asyncio.to_thread(handshake, port, authority, version) for version in VERSIONS]
    assert done == [False, False, True, True]
    server.close()
