"""Downloads files of bundles over http and https, and signs URLs of S3.

No message quotes an address, because an address may hold a secret. Messages of libraries may quote addresses, so they
are left out.

Addresses of S3 are signed, each for one download. The keys come from the environment, from the role of a pod or a
machine, or from a container's credentials: object_store finds them, the library behind obstore,
https://docs.rs/object_store/latest/object_store/aws/struct.AmazonS3Builder.html
Addresses and token of Hugging Face are what huggingface_hub says, so its variables of the environment hold.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import random
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import wait
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from importlib.metadata import version
from io import SEEK_END
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import quote, unquote

from translane_server.settings.model_sources import ModelUrl, is_exposed, is_local

if TYPE_CHECKING:
    from httpx2 import Request, Response

ATTEMPTS = 5
MOST_MANIFEST_BYTES = 1 << 24
SILENCE = 20.0  # longest time without a byte [seconds]
CONNECTING = 5.0  # longest time until there is a connection: packets may be dropped without a word [seconds]
BEGINNING = 60.0  # time of an attempt beside that of its bytes [seconds]
RATE = 64 * 1024  # the least rate of the bytes [bytes/s]
PAUSE = 0.5  # mean time before the second attempt; each pause is twice as long as the one before [seconds]
_LONGEST_PAUSE = 10.0  # [seconds]
_TICK = 0.05  # from one look at `stop` to the next [seconds]
_MOST_REDIRECTS = 5
GIVEN_UP = "the download was given up, because the server stops"
_PASSING = (408, 425, 429)  # and everything from 500 on

_log = logging.getLogger(__name__)


class DownloadError(Exception):
    """A file cannot be downloaded. The message is the end of a sentence that has named the bundle and the file."""


class _PassingError(DownloadError):
    """Another attempt may succeed."""


class Link(NamedTuple):
    """The address of a file, and the headers of requests for it. Both may hold secrets."""

    url: str
    headers: Mapping[str, str]
    is_pinned: bool  # whether a digest says what the file is, so that others who can change what comes do no harm


def download(
    title: str,
    link: Callable[[], Link],
    file: BinaryIO,
    size: int | None,
    stop: threading.Event,
    tell: Callable[[], None] = lambda: None,
    attempts: int = ATTEMPTS,
) -> None:
    """Download into `file`. Of a file of known size, go on after the bytes that `file` has.

    After an error `file` has what has arrived. The log has the `title`. Each attempt asks `link` for the address, which
    may be valid for some time only. `stop` is set when nobody wants the file any more, and `tell` is called now and
    then while bytes arrive. What may pass has so many `attempts`. A manifest has no `size`, because nobody knows it.

    Raises:
        DownloadError: the file has another size, is refused, or does not come.
        OSError: `file` cannot be written.
    """
    from anyio.from_thread import start_blocking_portal  # a server without URLs starts without these libraries

    for attempt in range(attempts):
        if stop.is_set():
            raise DownloadError(GIVEN_UP)
        try:
            # An event loop can end whatever it waits for: an answer, or bytes that come one by one.
            with start_blocking_portal() as portal:
                running = portal.start_task_soon(_attempt, link(), file, size)
                while not wait([running], _TICK).done:
                    if stop.is_set():
                        raise DownloadError(GIVEN_UP)
                    tell()
                running.result()
            return
        except _PassingError as error:
            if attempt + 1 == attempts:
                raise DownloadError(f"{error}, {attempts} times" if attempts > 1 else str(error)) from None
            _log.info("%s: %s; trying again", title, error)
            pause = min(PAUSE * 2**attempt, _LONGEST_PAUSE)
            stop.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311  so that many servers do not come at once


async def _attempt(link: Link, file: BinaryIO, size: int | None) -> None:
    most = MOST_MANIFEST_BYTES if size is None else size
    have = file.seek(0, SEEK_END)
    if have == size:
        return
    have = have if have < (size or 0) else 0
    begin = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(BEGINNING) as deadline, _opened(link, have) as response:
            got = have if response.status_code == HTTPStatus.PARTIAL_CONTENT else 0
            is_other_part = got and not response.headers.get("Content-Range", "").startswith(f"bytes {got}-")
            if is_other_part or response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                file.truncate(0)
                raise _PassingError("the answer has other bytes than the request asked for")
            length = response.headers.get("Content-Length")
            there = got + int(length or 0)
            if length and size is not None and there != size:
                raise DownloadError(f"it has {there:,} bytes there, and the manifest lists {size:,}")
            if there > most:
                raise DownloadError(f"it has {there:,} bytes there, at most {most:,} are accepted")
            file.truncate(got)
            file.seek(got)
            async for piece in response.aiter_raw():
                got += len(piece)
                if got > most:
                    raise DownloadError(f"it has more than {most:,} bytes there")
                file.write(piece)
                deadline.reschedule(begin + BEGINNING + (got - have) / RATE)
    except TimeoutError:
        raise _PassingError(f"it comes with less than {RATE / 1024:,.0f} KiB/s") from None
    except (DownloadError, OSError):
        raise
    except Exception as error:  # noqa: BLE001  no library may quote the address
        raise _problem(error) from None
    if got < (size or 0):
        raise _PassingError(f"it ended after {got:,} of {size:,} bytes")


@asynccontextmanager
async def _opened(link: Link, start: int) -> AsyncIterator[Response]:
    """Ask for a file from byte `start` on, and yield the answer: 200, 206 or 416.

    Proxies are those of the environment, but for this machine's own addresses: a proxy would see the password.

    Raises:
        DownloadError: there is no such answer.
    """
    import httpx2

    for library in ("httpx2", "httpcore2"):  # they would log addresses and headers
        logging.getLogger(library).setLevel(logging.WARNING)
    headers = {
        "User-Agent": f"translane-server/{version('translane')}",
        "Accept-Encoding": "identity",
        **link.headers,
        **({"Range": f"bytes={start}-"} if start else {}),
    }
    timeout = httpx2.Timeout(SILENCE, connect=CONNECTING).as_dict()
    request = httpx2.Request("GET", link.url, headers=headers, extensions={"timeout": timeout})
    for _ in range(_MOST_REDIRECTS + 1):
        # The system's authorities take 50 ms to read.
        tls = ssl.create_default_context() if request.url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client = httpx2.AsyncClient(verify=tls, trust_env=not is_local(str(request.url)))
        async with client, aclosing(await client.send(request, stream=True)) as response:
            if not response.has_redirect_location:
                _check_status(response.status_code)
                yield response
                return
        request = _redirected(request, response.next_request, link)
    raise DownloadError(f"it redirects more than {_MOST_REDIRECTS} times")


def _redirected(old: Request, new: Request | None, link: Link) -> Request:
    """Refuse a redirect from https to anything else, and without a digest to http of another machine.

    The library gives no password to another host.
    """
    if new is None:
        raise DownloadError("it redirects to no address")
    if new.url.scheme not in ("https", old.url.scheme):
        raise DownloadError(f"it redirects from {old.url.scheme} to another scheme")
    if not link.is_pinned and is_exposed(str(new.url)):
        raise DownloadError("it redirects to http:// of another machine, which needs a digest (@sha256:…)")
    return new


def _check_status(status: int) -> None:
    if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
        return
    known = next((f" {each.phrase}" for each in HTTPStatus if each == status), "")
    is_passing = status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    raise (_PassingError if is_passing else DownloadError)(f"the answer is {status}{known}")


def _problem(error: BaseException) -> DownloadError:
    """Say what is wrong with a connection, by the error that the library's own ones wrap."""
    kind = type(error).__name__
    while cause := error.__cause__ or next((each for each in error.args if isinstance(each, BaseException)), None):
        error = cause
    if isinstance(error, ssl.SSLCertVerificationError):
        return DownloadError(f"the certificate of its server is refused: {error.verify_message}")
    if isinstance(error, TimeoutError):
        return _PassingError("its server does not answer")
    if isinstance(error, ssl.SSLError | socket.gaierror) and error.strerror:
        return _PassingError(f"the connection fails: {error.strerror}")
    if isinstance(error, OSError) and error.errno:  # asyncio's own text has the address
        return _PassingError(f"the connection fails: {os.strerror(error.errno)}")
    return _PassingError(f"the connection fails ({kind})")


_VALID = timedelta(hours=1)  # for how long an address of S3 may be used
_TIMEOUT = timedelta(seconds=10)  # of a request for credentials
_RETRIES = 2


def links_of(url: ModelUrl) -> Callable[[str], Link]:
    """Return what gives the address of a file of the bundle at `url`, by the file's name.

    Raises:
        DownloadError: a package is missing, or settings of the environment are wrong. What is returned raises
            DownloadError if there are no keys, or others can change what comes and there is no digest.
    """
    found = {"s3": _of_s3, "hf": _of_hugging_face}.get(url.scheme, _of_web)(url)

    def link(name: str) -> Link:
        address, headers = found(name)
        if not url.digest and is_exposed(address):
            raise DownloadError("its store is at http://, and http:// needs a digest (@sha256:…)")
        return Link(address, headers, is_pinned=bool(url.digest))

    return link


_Address = tuple[str, Mapping[str, str]]
"""An address, and the headers that it needs."""


def _of_web(url: ModelUrl) -> Callable[[str], _Address]:
    headers = {}
    if url.user:
        headers["Authorization"] = "Basic " + base64.b64encode(unquote(url.user).encode()).decode("ascii")
    query = f"?{url.query}" if url.query else ""
    return lambda name: (f"{url.scheme}://{url.host}{url.path}/{quote(name)}{query}", headers)


def _of_hugging_face(url: ModelUrl) -> Callable[[str], _Address]:
    from huggingface_hub import get_token, hf_hub_url

    name_and_revision, _, folder = url.path.lstrip("/").partition("/")
    repository, _, revision = name_and_revision.partition("@")

    def address_of(name: str) -> _Address:
        path = f"{unquote(folder)}/{name}".lstrip("/")
        address = hf_hub_url(f"{url.host}/{repository}", path, revision=unquote(revision) or None)
        token = None if is_exposed(address) else get_token()
        return address, {"Authorization": f"Bearer {token}"} if token else {}

    return address_of


def _of_s3(url: ModelUrl) -> Callable[[str], _Address]:
    try:
        import obstore
        from obstore.store import S3Store
    except ModuleNotFoundError:
        raise DownloadError("obstore is not installed, which signs requests to S3; install translane[s3]") from None
    try:
        store: Any = S3Store(
            url.host,
            client_options={"timeout": _TIMEOUT, "connect_timeout": _TIMEOUT},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _TIMEOUT},
        )
    except Exception as error:  # noqa: BLE001  obstore raises many types, and its messages may quote settings
        raise DownloadError(f"the environment's settings of S3 are wrong ({type(error).__name__})") from None

    def address_of(name: str) -> _Address:
        try:
            return str(obstore.sign(store, "GET", f"{unquote(url.path)}/{name}".lstrip("/"), _VALID)), {}
        except Exception as error:  # noqa: BLE001  as above
            raise DownloadError(
                "it cannot be signed: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_ENDPOINT_URL is missing or wrong,"
                f" and the machine has no role ({type(error).__name__})"
            ) from None

    return address_of
