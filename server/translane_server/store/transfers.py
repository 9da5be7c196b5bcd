"""HTTP requests for files: what is followed, what is refused, and what is worth another attempt."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from importlib.metadata import version
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from translane_server.model_urls import is_exposed, is_local
from translane_server.store.problems import DownloadError, PassingError, RangeError
from translane_server.store.watch import Watch

_CHUNK = 1 << 18  # bytes
_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_PASSING = (408, 425, 429)  # and everything from 500 on
_AUTHORIZATION = "Authorization"


class Link(NamedTuple):
    """The address of a file, and the headers of requests for it. Both may hold secrets.

    Attributes:
        is_pinned: whether a digest says what the file is, so that others who can change what comes do no harm.
    """

    url: str
    headers: Mapping[str, str] = {}
    is_pinned: bool = False


@contextmanager
def opened(link: Link, start: int, watch: Watch, silence: float) -> Iterator[HTTPResponse]:
    """Ask for a file from byte `start` on, and yield the answer, which is 200 or 206.

    Proxies are those of the environment (``https_proxy``, ``no_proxy``), but for this machine's own addresses.
    Redirects are followed, but not from https to anything else, nor without a digest to http of another machine.
    Another host gets no password.

    Args:
        link: the address of the file.
        start: the first byte that is wanted; a server may answer with the whole file all the same.
        watch: ends connections that take too long.
        silence: longest time without a byte [seconds].

    Raises:
        DownloadError: there is no such answer.
    """
    headers = {
        "User-Agent": f"translane-server/{version('translane')}",
        "Accept-Encoding": "identity",
        **link.headers,
        **({"Range": f"bytes={start}-"} if start else {}),
    }
    url = link.url
    for _ in range(_MOST_REDIRECTS + 1):
        with closing(_answer(url, headers, watch, silence)) as response:
            if response.status not in _REDIRECTS:
                _check_status(response.status)
                yield response
                return
            url, headers = _redirected(url, headers, response.headers.get("Location", ""))
            if not link.is_pinned and is_exposed(url):
                raise DownloadError("it redirects to http:// of another machine, which needs a digest (@sha256:…)")
    raise DownloadError(f"it redirects more than {_MOST_REDIRECTS} times")


def first_byte(response: HTTPResponse, wanted: int) -> int:
    """Return the number of the first byte of an answer: `wanted` or 0.

    Raises:
        RangeError: it is another one.
    """
    if response.status == HTTPStatus.OK:
        return 0
    found = re.match("bytes ([0-9]{1,18})-", response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != wanted:
        raise RangeError("the answer has other bytes than the request asked for")
    return wanted


def chunks(response: HTTPResponse, watch: Watch) -> Iterator[bytes]:
    """Yield the bytes of an answer as they arrive. An answer may end too early without an error.

    Raises:
        DownloadError: the connection ends.
    """
    while True:
        try:
            chunk = response.read1(_CHUNK)
        except (OSError, HTTPException) as error:
            watch.check()
            raise _problem(error) from None
        watch.check()
        if not chunk:
            return
        yield chunk


class _PlainConnection(HTTPConnection):
    def __init__(self, host: str, *, watch: Watch, **arguments: Any) -> None:
        super().__init__(host, **arguments)
        self._watch = watch

    def connect(self) -> None:
        super().connect()
        self._watch.add(self.sock)


class _TlsConnection(_PlainConnection, HTTPSConnection):
    pass


class _PlainHandler(HTTPHandler):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_PlainConnection, req, watch=self._watch)  # type: ignore[arg-type]  # a class of connections


class _TlsHandler(HTTPSHandler):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_TlsConnection, req, watch=self._watch)  # type: ignore[arg-type]  # a class of connections


def _answer(url: str, headers: Mapping[str, str], watch: Watch, silence: float) -> HTTPResponse:
    opener = OpenerDirector()  # knows no other schemes, no cookies, and follows nothing by itself
    proxies = ProxyHandler({} if is_local(url) else None)  # a proxy would see the password of a local http address
    for handler in (proxies, _PlainHandler(watch), _TlsHandler(watch)):
        opener.add_handler(handler)
    try:
        response = opener.open(Request(url, headers=dict(headers)), timeout=silence)  # noqa: S310  http and https alone
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a host that is none
        watch.check()
        raise _problem(error) from None
    assert isinstance(response, HTTPResponse)
    return response


def _redirected(url: str, headers: Mapping[str, str], location: str) -> tuple[str, dict[str, str]]:
    if not re.fullmatch("[!-~]+", location):
        raise DownloadError("it redirects to no address")
    try:
        old, new = urlsplit(url), urlsplit(target := urljoin(url, location))
    except ValueError:
        raise DownloadError("it redirects to no address") from None
    if new.scheme not in ("https", old.scheme):
        raise DownloadError(f"it redirects from {old.scheme} to another scheme")
    same = (old.scheme, old.netloc) == (new.scheme, new.netloc)
    return target, {name: value for name, value in headers.items() if same or name != _AUTHORIZATION}


def _check_status(status: int) -> None:
    if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        return
    known = next((f" {each.phrase}" for each in HTTPStatus if each == status), "")
    message = f"the answer is {status}{known}"
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        raise RangeError(message)
    raise (PassingError if status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR else DownloadError)(message)


def _problem(error: Exception) -> DownloadError:
    """Say what is wrong with a connection. Messages of libraries may quote addresses, so they are left out."""
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DownloadError(f"the certificate of its server is refused: {reason.verify_message}")
    if isinstance(reason, TimeoutError):
        return PassingError("its server does not answer")
    if isinstance(reason, OSError) and reason.strerror:
        return PassingError(f"the connection fails: {reason.strerror}")
    return PassingError(f"the connection fails ({type(reason).__name__})")
