"""The addresses of a bundle's files, whichever store has them. All are downloaded alike, within the same bounds.

Addresses of S3 are signed, each for one download. The keys come from the environment, from the role of a pod or a
machine, or from a container's credentials: object_store finds them, the library behind obstore,
https://docs.rs/object_store/latest/object_store/aws/struct.AmazonS3Builder.html
Addresses and token of Hugging Face are what huggingface_hub says, so its variables of the environment hold.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote, unquote

from translane_server.models.download import DownloadError, Link
from translane_server.settings.model_sources import ModelUrl, is_exposed

_VALID = timedelta(hours=1)  # for how long an address of S3 may be used
_TIMEOUT = timedelta(seconds=10)  # of a request for credentials
_RETRIES = 2


def links_of(url: ModelUrl) -> Callable[[str], Link]:
    """Return what gives the address of a file of the bundle at `url`, by the file's name.

    Raises:
        DownloadError: a package is missing, or settings of the environment are wrong. What is returned raises
            DownloadError if there are no keys, or others can change what comes and there is no digest.
    """
    link = {"s3": _of_s3, "hf": _of_hugging_face}.get(url.scheme, _of_web)(url)

    def checked(name: str) -> Link:
        found = link(name)
        if not url.digest and is_exposed(found.url):
            raise DownloadError("its store is at http://, and http:// needs a digest (@sha256:…)")
        return found

    return checked


def _of_web(url: ModelUrl) -> Callable[[str], Link]:
    headers = {}
    if url.user:
        headers["Authorization"] = "Basic " + base64.b64encode(unquote(url.user).encode()).decode("ascii")
    query = f"?{url.query}" if url.query else ""
    return lambda name: Link(
        f"{url.scheme}://{url.host}{url.path}/{quote(name)}{query}", headers, is_pinned=bool(url.digest)
    )


def _of_hugging_face(url: ModelUrl) -> Callable[[str], Link]:
    from huggingface_hub import get_token, hf_hub_url

    name_and_revision, _, folder = url.path.lstrip("/").partition("/")
    repository, _, revision = name_and_revision.partition("@")

    def link(name: str) -> Link:
        path = f"{unquote(folder)}/{name}".lstrip("/")
        address = hf_hub_url(f"{url.host}/{repository}", path, revision=unquote(revision) or None)
        token = None if is_exposed(address) else get_token()
        return Link(address, {"Authorization": f"Bearer {token}"} if token else {}, is_pinned=bool(url.digest))

    return link


def _of_s3(url: ModelUrl) -> Callable[[str], Link]:
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

    def link(name: str) -> Link:
        try:
            address = str(obstore.sign(store, "GET", f"{unquote(url.path)}/{name}".lstrip("/"), _VALID))
        except Exception as error:  # noqa: BLE001  as above
            raise DownloadError(
                "it cannot be signed: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_ENDPOINT_URL is missing or wrong,"
                f" and the machine has no role ({type(error).__name__})"
            ) from None
        return Link(address, is_pinned=bool(url.digest))

    return link
