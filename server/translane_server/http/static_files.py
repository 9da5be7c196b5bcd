"""The status page at `/`, and the files that it loads from `/page/`. They are open: all data needs the caller's key."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePath

from translane_server.forwarding.forwarder import Metadata
from translane_server.http.pages import MakePage, Page

_INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

# The page runs its own scripts alone, talks to its own server alone, and is in no frame. A script that makes HTML of
# text fails (https://w3c.github.io/webappsec-csp/, https://w3c.github.io/trusted-types/dist/spec/).
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


def static_pages() -> Mapping[str, MakePage]:
    """Return the pages by their paths. The files are read once."""
    folder = files(__package__).joinpath("page")
    pages = {}
    for file in folder.iterdir():
        kind = _TYPES.get(PurePath(file.name).suffix)
        if kind:
            path = "/" if file.name == _INDEX else f"/page/{file.name}"
            pages[path] = _always(Page(file.read_bytes(), kind, headers=SECURITY_HEADERS))
    return pages


def _always(page: Page) -> MakePage:
    async def made(_metadata: Metadata) -> Page:
        return page

    return made
