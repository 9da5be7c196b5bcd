"""The flags that say how a command reaches its servers, and what their errors say to a person at a terminal."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from translane.command_error import CommandError
from translane_client._addresses import servers_of
from translane_client.cli.flags import ENV_PREFIX, Flags, unicode

if TYPE_CHECKING:
    from translane_client.connection import Connection

_NAMES = ("tls", "ca", "cert", "key", "server_name", "token", "token_file")
_ADVICE = {"tls=True": "--tls", "tls=False": "--no-tls"}


def add_flags(flags: Flags) -> None:
    """Declares the flags; a token has none, because all users of a machine can see the flags of its programs."""
    flags.add(
        "--server",
        default="localhost:50051",
        type=_servers,
        metavar="HOST:PORT",
        help="address of the server, or of several with commas between them, which requests take in turn",
    )
    flags.switch("--tls", default=None, help="connect with TLS; --no-tls sends a key over plain text, too")
    for name, help in (
        ("--ca", "certificates that are trusted, as PEM; turns TLS on"),
        ("--cert", "own certificate, as PEM, for servers that want one; turns TLS on"),
        ("--key", "private key of --cert, as PEM"),
        ("--token-file", f"key that the server knows the caller by ({ENV_PREFIX}TOKEN holds a key itself)"),
    ):
        flags.add(name, type=Path, metavar="FILE", help=help)
    flags.add("--server-name", type=unicode, metavar="NAME", help="name in the certificates of the servers")
    flags.add_variable("token")


def connection_of(arguments: argparse.Namespace) -> Connection:
    """The connection that the arguments describe. CommandError: they are wrong; the message names the flags."""
    from translane_client.connection import Connection

    options: Any = {name: getattr(arguments, name) for name in _NAMES}
    if "token_file" in arguments.given:  # it wins over a key in the environment
        options["token"] = None
    try:
        return Connection(arguments.server, **options)
    except ValueError as error:
        raise CommandError(_with_flags(str(error))) from None


def explained(error: Exception) -> str:
    """The error's message, and what to do where a setting of the command is missing."""
    if getattr(error, "reason", "") == "MISSING_KEY":
        return f"{error} (--token-file FILE, or {ENV_PREFIX}TOKEN)"
    return str(error)


def _with_flags(message: str) -> str:
    """The message of a wrong setting, which begins with the names of settings, with the names of flags."""
    names, colon, rest = message.partition(": ")
    if not re.fullmatch(rf"({'|'.join(_NAMES)})(, ({'|'.join(_NAMES)}))*", names):
        return message
    for keyword, flag in _ADVICE.items():
        rest = rest.replace(keyword, flag)
    return ", ".join(map(_flag, names.split(", "))) + colon + rest


def _flag(name: str) -> str:
    return f"{ENV_PREFIX}TOKEN" if name == "token" else "--" + name.replace("_", "-")


def _servers(text: str) -> str:
    try:
        return ",".join(servers_of(unicode(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
