"""API keys: their file, their secrets, and their limits.

A key is a token of 32 random bytes, which its holder sends with each call as a bearer token (RFC 6750). The file has
the token's SHA-256. A slow hash such as scrypt makes it hard to guess passwords, which people choose. Nobody guesses
256 random bits, whatever the hash costs; and a slow hash would let each call cost the server milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from translane_server.core.errors import KeysError
from translane_server.core.files import read_regular, replaced_whole

PREFIX = "tl_"
"""What every token begins with, so that scanners for secrets find tokens."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

MOST_HOLDERS = 1000
MOST_KEYS_OF_A_HOLDER = 16

_TOKEN = re.compile(PREFIX + "[0-9a-f]{64}")
_SECRET = re.compile(PREFIX + "[0-9A-Za-z_-]{8,}")  # what may be a token, or a part of one
_MOST_BYTES = 1 << 22

_HEADER = "# Keys of callers, as hashes. translane keys writes this file anew, and keeps no comments; a note stays.\n"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("it is not between the years 1 and 9999 in UTC") from None


class Key(_Part):
    """A key, by the hash of its token. It may expire."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    expires: Annotated[AwareDatetime, AfterValidator(_in_utc)] | None = None

    def has_expired(self, now: datetime) -> bool:
        """Whether the key is refused at `now`."""
        return self.expires is not None and self.expires <= now


class KeyHolder(_Part):
    """Who has keys, under a name, and how much all calls with these keys may ask for. None is no limit.

    Several keys are valid at the same time, so that one can be replaced by another.
    """

    keys: Annotated[tuple[Key, ...], Field(max_length=MOST_KEYS_OF_A_HOLDER)] = ()
    sentences_in_flight: Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)] | None = None
    sentences_per_second: Annotated[float, Field(gt=0, le=1e9, strict=True)] | None = None
    note: Annotated[str, StringConstraints(max_length=200)] = ""


Holders = Mapping[str, KeyHolder]

_HOLDERS: TypeAdapter[dict[str, KeyHolder]] = TypeAdapter(dict[str, KeyHolder])


def make_token() -> str:
    """Return a new token: its prefix, and 32 random bytes in hexadecimal."""
    return PREFIX + secrets.token_hex(32)


def is_token(text: str) -> bool:
    """Whether a text has the shape of a token."""
    return _TOKEN.fullmatch(text) is not None


def digest_of(token: str) -> bytes:
    """Return the SHA-256 of a token, 32 bytes."""
    return hashlib.sha256(token.encode()).digest()


def load_keys(path: Path) -> Holders:
    """Return the holders of keys in a file, by their names.

    Raises:
        KeysError: the file cannot be read, or is wrong. The message names the file, and shows no key.
    """
    try:
        return parse_keys(read_regular(path, _MOST_BYTES))
    except OSError as error:
        raise KeysError(f"keys file {path}: it cannot be read: {error.strerror}") from None
    except KeysError as error:
        raise KeysError(f"keys file {path}: {error}") from None


def parse_keys(content: bytes) -> Holders:
    """Return the holders of keys in the content of a file, by their names. Raises KeysError, which shows no key."""
    try:
        tables = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise KeysError("it is not UTF-8") from None
    except ValueError as error:
        raise KeysError(without_secrets(f"it is not TOML: {error}")) from None
    except RecursionError:
        raise KeysError("it is not TOML: it is nested too deeply") from None
    if len(tables) > MOST_HOLDERS:
        raise KeysError(f"it has {len(tables):,} holders, at most {MOST_HOLDERS:,} are accepted")
    for name in tables:
        check_name(name)
    try:
        holders = _HOLDERS.validate_python(tables)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))[:100]
        raise KeysError(without_secrets(f"{place}: {problem['msg'][:1].lower()}{problem['msg'][1:]}")) from None
    owners: dict[str, str] = {}
    for name, holder in holders.items():
        for key in holder.keys:
            if key.sha256 in owners:
                raise KeysError(f"{owners[key.sha256]} and {name} have the same key, or one of them has it twice")
            owners[key.sha256] = name
    return holders


def check_name(name: str) -> None:
    """Refuse a name that no holder may have. Raises KeysError."""
    if _SECRET.match(name):
        raise KeysError("a name looks like a key; the key belongs to its holder, and its hash into this file")
    if not re.fullmatch(NAME, name):
        raise KeysError(
            f"{name[:80]!r} is no name of a holder: letters, digits and . _ - are accepted, 64 characters at most"
        )


def write_keys(holders: Holders) -> str:
    """Return the content of a file with these holders, in TOML."""
    return _HEADER + "".join(f"\n{_table(name, holder)}" for name, holder in sorted(holders.items()))


def without_secrets(text: str) -> str:
    """Return `text` without anything that may be a token, such as one that was pasted at the wrong place."""
    return _SECRET.sub(f"{PREFIX}…", text)


def _table(name: str, holder: KeyHolder) -> str:
    lines = [f"[{_quoted(name)}]"]
    if holder.note:
        lines.append(f"note = {_quoted(holder.note)}")
    for field in ("sentences_in_flight", "sentences_per_second"):
        if (limit := getattr(holder, field)) is not None:
            lines.append(f"{field} = {limit!r}")
    lines += ["keys = [", *(f"    {_inline(key)}," for key in holder.keys), "]"]
    return "\n".join(lines) + "\n"


def _inline(key: Key) -> str:
    if key.expires is None:
        return f'{{ sha256 = "{key.sha256}" }}'
    return f'{{ sha256 = "{key.sha256}", expires = {key.expires.isoformat()} }}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML's strings are JSON's, but for this


# Only its owner reads a new file. A file that exists keeps its mode.
_MODE = 0o600


def change_keys(path: Path, change: Callable[[Holders], Holders]) -> None:
    """Replace the file of keys by one with other holders. Whoever reads it meanwhile reads the file before.

    The file is made if there is none. Changes of the same file wait for each other. Nothing is written if `change`
    raises, which returns the new holders. Raises KeysError if the file cannot be read or written.
    """
    path = Path(os.path.realpath(path))  # a link stays one
    try:
        with _locked(path.parent):
            content = write_keys(change(load_keys(path) if path.exists() else {}))
            with replaced_whole(path) as new:
                new.unlink(missing_ok=True)  # of a command that was killed
                descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(content)
                    if path.exists():
                        status = path.stat()
                        with contextlib.suppress(PermissionError):
                            os.fchown(file.fileno(), status.st_uid, status.st_gid)
                        os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
    except OSError as error:
        raise KeysError(f"keys file {path}: it cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
