"""A real object store on loopback: SeaweedFS, which speaks the protocol of S3, with its data in a folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from helpers.file_server import wait_until
from helpers.ports import free_port

BUCKET = "models"
# All ports of the program have numbers of their own, so that several tests run beside each other.
PORTS = (
    *(f"{each}.{kind}" for each in ("master", "volume", "filer", "s3", "admin") for kind in ("port", "port.grpc")),
    "webdav.port",
    "s3.port.iceberg",
    "s3.port.lance",
)
KEY, SECRET = "translane-test", "hunter2-of-the-store"


@dataclass(frozen=True)
class ObjectStore:
    """A running store with the bucket `BUCKET`."""

    endpoint: str

    @property
    def environ(self) -> dict[str, str]:
        """The variables that lead to the store."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def put(self, folder: Path, place: str) -> None:
        """Upload the files of `folder`, the manifest last."""
        import obstore
        from obstore.store import S3Store

        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id=KEY,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
        )
        for path in sorted(folder.iterdir(), key=lambda path: path.name == "manifest.json"):
            obstore.put(store, f"{place}/{path.name}", path.read_bytes())


def program() -> str | None:
    """The path of SeaweedFS; None where it is not installed."""
    return shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


@contextlib.contextmanager
def serving_objects(folder: Path) -> Iterator[ObjectStore]:
    command = program()
    assert command is not None
    ports = {name: free_port() for name in PORTS}
    flags = [f"-{name}={port}" for name, port in ports.items()]
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [command, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *flags],
            env={**keys, "S3_BUCKET": BUCKET, "HOME": str(folder), "PATH": os.environ["PATH"]},
            stdout=log,
            stderr=log,
        )
    try:
        store = ObjectStore(f"http://127.0.0.1:{ports['s3.port']}")
        wait_until(lambda: process.poll() is None and answers(f"{store.endpoint}/healthz"), patience=60)
        yield store
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    with contextlib.suppress(URLError, ConnectionError), urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False
