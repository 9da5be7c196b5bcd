"""The addresses of a bundle's files. Those of S3 are signed, each for one download.

A signed address is downloaded like any other, so the same bounds hold. The keys of S3 come from the environment, from
the role of a pod or a machine, or from a container's credentials: object_store finds them, the library behind obstore,
https://docs.rs/object_store/latest/object_store/aws/struct.AmazonS3Builder.html
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from translane_server.model_urls import ModelUrl, is_exposed
from translane_server.store.problems import DownloadError
from translane_server.store.transfers import Link

_VALID = timedelta(hours=1)  # for how long an address may be used
_TIMEOUT = timedelta(seconds=10)  # of a request for credentials
_RETRIES = 2


def links_of(url: ModelUrl) -> Callable[[str], Link]:
    """Return what gives the address of a file of the bundle at `url`, by the file's name.

    Raises:
        DownloadError: obstore is not installed, or the environment's settings of S3 are wrong. What is returned raises
            DownloadError if there are no keys.
    """
    if url.scheme == "s3":
        return _signed(url)
    headers = {"Authorization": url.authorization} if url.user else {}
    return lambda name: Link(url.of_file(name), headers, is_pinned=bool(url.digest))


def _signed(url: ModelUrl) -> Callable[[str], Link]:
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
            address = str(obstore.sign(store, "GET", url.object_key(name), _VALID))
        except Exception as error:  # noqa: BLE001  as above
            raise DownloadError(
                "it cannot be signed: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_ENDPOINT_URL is missing or wrong,"
                f" and the machine has no role ({type(error).__name__})"
            ) from None
        if not url.digest and is_exposed(address):
            raise DownloadError("the endpoint of S3 is http://, and http:// needs a digest (@sha256:…)")
        return Link(address, is_pinned=bool(url.digest))

    return link
