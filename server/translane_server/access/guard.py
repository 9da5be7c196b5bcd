"""The certificates and keys of a server, by its settings."""

from __future__ import annotations

import ipaddress
import logging
from pathlib import Path

from translane_server.access.certificates import Certificates
from translane_server.access.key_ring import KeyRing
from translane_server.core.file_changes import INTERVAL, Followed, follow
from translane_server.observation.metrics import Metrics
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)


class Guard:
    """What a server asks of its callers.

    Args:
        settings: the settings of the server.
        metrics: counts what holders of keys ask for.

    Attributes:
        certificates: the certificates of the ports; None without TLS.
        keys: the keys that callers need; None if they need none.

    Raises:
        StartupError: a certificate or the file of keys is wrong.
    """

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self.certificates = certificates_of(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self.keys = KeyRing(settings.keys_file, metrics) if settings.keys_file else None

    async def follow(self) -> None:
        """Follow the files of certificates and keys, for ever."""
        followed: list[Followed] = [each for each in (self.certificates, self.keys) if each]
        if followed:
            await follow(followed, INTERVAL)


def certificates_of(cert: Path | None, key: Path | None, client_ca: Path | None) -> Certificates | None:
    """Return the certificates of the settings; None without TLS.

    Raises:
        CertificateError: a certificate is wrong.
    """
    return Certificates(cert, key, client_ca) if cert and key else None


def what_is_missing(settings: ServerSettings) -> str:
    """What a server lacks that other machines can reach, and what follows; empty if it lacks nothing."""
    if _is_loopback(settings.host):
        return ""
    knows_callers = settings.keys_file or settings.tls_client_ca
    if settings.tls_cert and knows_callers:
        return ""
    if settings.tls_cert:
        return "without keys (--keys-file): whoever reaches the port may translate"
    if knows_callers:
        return "without TLS (--tls-cert): whoever is on the way can read texts and keys"
    return (
        "without TLS (--tls-cert) and keys (--keys-file): whoever reaches the port may translate, and whoever is on"
        " the way can read texts"
    )


def warn_of_what_is_missing(settings: ServerSettings) -> None:
    """Log what other machines may do, if the server listens to them and lacks TLS or keys."""
    if missing := what_is_missing(settings):
        _log.warning("listening on %s %s", settings.host, missing)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
