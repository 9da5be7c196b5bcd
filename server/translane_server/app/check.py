"""`translane serve --check`: looks at everything that a server reads when it starts, and serves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from translane_server.access.authenticator import what_is_missing
from translane_server.access.certificates import certificates_of
from translane_server.access.keys import load_keys
from translane_server.core.errors import CertificateError, KeysError
from translane_server.models.build import build_registry, shortages
from translane_server.models.checkpoints import with_bundles
from translane_server.models.remote_model import remote_models
from translane_server.observation.metrics import Metrics
from translane_server.settings.server_settings import ServerSettings


def check(settings: ServerSettings) -> Iterator[str]:
    """Yield a line about each thing that is right. The settings are right already.

    Raises:
        StartupError: something is wrong, so that a server would not start, or would serve nobody.
    """
    yield "settings: right"
    if certificates := certificates_of(settings):
        identity = certificates.current
        if identity.problem:
            raise CertificateError(f"certificate {settings.tls_cert}: {identity.problem}")
        yield f"certificate {settings.tls_cert}: for {', '.join(identity.names)}; valid until {identity.expires}"
        if settings.tls_client_ca:
            yield f"certificates of callers: those of {settings.tls_client_ca}"
    if settings.keys_file:
        holders = load_keys(settings.keys_file)
        keys = [key for holder in holders.values() for key in holder.keys]
        now = datetime.now(UTC)
        expired = sum(key.has_expired(now) for key in keys)
        if expired == len(keys):
            raise KeysError(f"keys {settings.keys_file}: nobody has a key that is valid; translane keys add makes one")
        yield f"keys {settings.keys_file}: holders {len(holders)}, keys {len(keys)}, expired keys {expired}"
    settings = with_bundles(settings)
    for place, remote in remote_models(settings).items():
        yield f"model bundle {place.url}: sha256:{remote.refresh()} is in {remote.folder}"
    models = build_registry(settings, Metrics())
    for name, model in models.models.items():
        described = model.description
        manifest = described.manifest
        yield (
            f"model {name}: version {described.identity}, {manifest.precision}, on {described.device}; its"
            f" {len(manifest.files)} files are those that were exported"
        )
    for shortage in shortages(settings, models):
        yield f"warning: {shortage}"
    if missing := what_is_missing(settings):
        yield f"listens on {settings.host} {missing}"
