import asyncio
import datetime
import logging
import socket
import ssl
import warnings
from contextlib import asynccontextmanager

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import NameOID

trustme = pytest.importorskip("trustme")

from helpers.certificates import ServerFiles, replace  # noqa: E402
from translane_server.access import certificates  # noqa: E402
from translane_server.access.certificates import Certificates  # noqa: E402
from translane_server.core.errors import CertificateError  # noqa: E402


@pytest.fixture
def files(tmp_path, authority):
    return ServerFiles(tmp_path, authority)


def settle(certificates):
    """Look twice, so that a change has stayed for one look."""
    certificates.refresh()
    certificates.refresh()


def encrypted(pem):
    key = serialization.load_pem_private_key(pem, None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


NO_CERTIFICATE = "it has no certificate in PEM"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        *((name, None, "it cannot be read: No such file") for name in ("cert", "key", "ca")),
        ("key", lambda _: trustme.CA().issue_cert("localhost").private_key_pem.bytes(), "it is not the key of the"),
        ("key", encrypted, "it is encrypted; the server has no passphrase for it"),
        ("key", lambda _: b"no key", "it is no private key in PEM"),
        ("cert", lambda _: b"", NO_CERTIFICATE),
        ("cert", lambda _: b"\0\xff" * 100, NO_CERTIFICATE),
        ("cert", lambda _: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", NO_CERTIFICATE),
        ("ca", lambda _: b"", NO_CERTIFICATE),
    ],
)
def test_refuses_files_that_are_wrong(files, name, content, problem):
    path = getattr(files, name)
    path.write_bytes(content(path.read_bytes())) if content else path.unlink()
    with pytest.raises(CertificateError, match=f"{path}: {problem}"):
        Certificates(files.cert, files.key, files.ca)


def write_certificate(files, key, digest, signer):
    """Write a certificate of `key` that another key has signed, or the same one."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    encoding = serialization.Encoding.PEM
    replace(files.cert, builder.sign(signer, digest).public_bytes(encoding))
    plain = serialization.NoEncryption()
    replace(files.key, key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))


@pytest.mark.parametrize(
    ("key", "digest", "refused"),
    [
        (ed25519.Ed25519PrivateKey.generate(), None, "Ed25519"),
        (ed448.Ed448PrivateKey.generate(), None, "Ed448"),
        (ec.generate_private_key(ec.SECP521R1()), hashes.SHA256(), "ECDSA with P-521"),
        (rsa.generate_private_key(65537, 2048), hashes.SHA256(), ""),
        (ec.generate_private_key(ec.SECP256R1()), hashes.SHA256(), ""),
        (ec.generate_private_key(ec.SECP384R1()), hashes.SHA256(), ""),
    ],
    ids=["Ed25519", "Ed448", "P-521", "RSA", "P-256", "P-384"],
)
async def test_takes_the_keys_that_grpc_takes_and_no_others(files, key, digest, refused, monkeypatch):
    write_certificate(files, key, digest, key)
    if refused:
        with pytest.raises(CertificateError, match=f"its key is {refused}, which gRPC does not take"):
            Certificates(files.cert, files.key)
        monkeypatch.setattr(certificates, "_NO_KEYS_OF_GRPC", {})
    try:
        async with grpc_port(Certificates(files.cert, files.key)) as port:
            assert await grpc_answers(port, files.cert.read_bytes()) is not bool(refused)
    except RuntimeError as error:  # gRPC does not even begin with some keys
        assert refused
        assert "Failed to bind" in str(error)  # noqa: PT017


@pytest.mark.parametrize("kind", [ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey])
def test_takes_any_signature_of_an_authority(files, kind):
    write_certificate(files, ec.generate_private_key(ec.SECP256R1()), None, kind.generate())
    Certificates(files.cert, files.key)


def test_warns_of_an_expired_certificate(files, authority, caplog):
    end = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    files.write(authority, not_before=end - datetime.timedelta(days=9), not_after=end)
    with caplog.at_level(logging.WARNING):
        assert Certificates(files.cert, files.key).current.problem == "it has expired, so callers refuse it"
    (line,) = caplog.messages
    assert line.endswith("it has expired, so callers refuse it")


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


def test_reads_no_file_that_still_changes(files, caplog):
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
    (line,) = caplog.messages
    assert line.endswith("have changed while they were read; the certificate before goes on")
    with caplog.at_level(logging.INFO):
        settle(certificates)
    assert "valid until" in caplog.messages[-1]


@asynccontextmanager
async def grpc_port(certificates):
    """A gRPC server without services, whose unknown methods answer UNIMPLEMENTED; yields its port."""
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", certificates.grpc_credentials())
    await server.start()
    yield port
    await server.stop(0)


async def grpc_answers(port, trusted, caller=None):
    own = (caller.private_key_pem.bytes(), caller.cert_chain_pems[0].bytes()) if caller else ()
    credentials = grpc.ssl_channel_credentials(trusted, *own)
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/a/b", None, None)(b"", timeout=20)
    assert caught.value.code().name in ("UNIMPLEMENTED", "UNAVAILABLE")
    return caught.value.code().name == "UNIMPLEMENTED"


@asynccontextmanager
async def http_port(certificates):
    """Serve one line to each connection; yields the port."""

    async def answer(_reader, writer):
        writer.write(b"hello\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certificates.ssl_context()) as server:
        yield server.sockets[0].getsockname()[1]


def client_of(authority, caller=None, **attributes):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    for name, value in attributes.items():
        setattr(context, name, value)
    if caller:
        caller.configure_cert(context)
    return context


def line_of(port, client, session=None, name="localhost"):
    """What the server sends to a connection, which may go on with a session, and the connection's session."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        client.wrap_socket(plain, server_hostname=name, session=session) as connection,
    ):
        return connection.recv(100), connection.session


async def http_answers(port, client, session=None, name="localhost"):
    """With TLS 1.3, a caller may hear of the refusal after its own handshake."""
    try:
        return (await asyncio.to_thread(line_of, port, client, session, name))[0] == b"hello\n"
    except (ssl.SSLError, ConnectionError):
        return False


PORTS = pytest.mark.parametrize("port_of", [grpc_port, http_port], ids=["grpc", "http"])


async def is_served(port_of, port, authority, issuer=None):
    caller = issuer.issue_cert("caller@example.org") if issuer else None
    if port_of is grpc_port:
        return await grpc_answers(port, authority.cert_pem.bytes(), caller)
    names = ("localhost", "127.0.0.1")
    answers = {await http_answers(port, client_of(authority, caller), name=name) for name in names}
    assert len(answers) == 1
    return answers.pop()


@PORTS
async def test_a_port_follows_the_files_of_its_certificate_and_of_the_authorities_of_callers(
    files, authority, another, port_of
):
    open_to_all, of_callers = Certificates(files.cert, files.key), Certificates(files.cert, files.key, files.ca)
    trusted, issuers = (authority, another), (None, authority, another)
    async with port_of(open_to_all) as port, port_of(of_callers) as closed:
        assert [await is_served(port_of, port, each) for each in trusted] == [True, False]
        assert [await is_served(port_of, closed, authority, issuer) for issuer in issuers] == [False, True, False]
        files.write(another, callers=another)
        for each in (open_to_all, of_callers):
            settle(each)
        assert [await is_served(port_of, port, each) for each in trusted] == [False, True]
        assert [await is_served(port_of, closed, another, issuer) for issuer in issuers] == [False, False, True]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_no_session_outlives_the_authority_of_its_caller(files, authority, another, version):
    certificates = Certificates(files.cert, files.key, files.ca)
    client = client_of(authority, authority.issue_cert("caller@example.org"), maximum_version=version)
    async with http_port(certificates) as port:
        sent, session = await asyncio.to_thread(line_of, port, client)
        assert sent == b"hello\n"
        assert not session.has_ticket
        files.write(authority, callers=another)
        settle(certificates)
        assert not await http_answers(port, client, session)


@PORTS
async def test_a_port_takes_tls_1_2_or_newer(files, authority, port_of):
    def handshake(port, version):
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

    versions = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
    async with port_of(Certificates(files.cert, files.key)) as port:
        done = [await asyncio.to_thread(handshake, port, version) for version in versions]
    assert done == [False, False, True, True]
