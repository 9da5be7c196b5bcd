"""Files of keys, for servers that ask for them."""

from pathlib import Path
from typing import Any

from translane_server.access.keys import Key, KeyHolder, digest_of, write_keys


def holder(*tokens: str, expires: Any = None, **limits: Any) -> KeyHolder:
    """Return who holds these tokens, with limits of its own."""
    return KeyHolder(keys=tuple(Key(sha256=digest_of(token).hex(), expires=expires) for token in tokens), **limits)


def bearer(token: str) -> list[tuple[str, str]]:
    """The metadata of a call that shows a key."""
    return [("authorization", f"Bearer {token}")]


def key_file(folder: Path, **holders: KeyHolder) -> Path:
    """Write a file of these holders to `folder`, and return it."""
    file = folder / "keys.toml"
    file.write_text(write_keys(holders), encoding="utf-8")
    file.chmod(0o600)
    return file
