"""`translane keys`: makes, lists and removes the keys of callers."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from translane.arguments import Parser
from translane_server.access.keys import (
    MOST_HOLDERS,
    MOST_KEYS_OF_A_HOLDER,
    Holders,
    Key,
    KeyHolder,
    change_keys,
    check_name,
    digest_of,
    load_keys,
    make_token,
    without_secrets,
)
from translane_server.core.errors import KeysError, SettingsError
from translane_server.settings.loader import SettingsParser

_PROG = "translane keys"
_FILE_VARIABLE = "TRANSLANE_KEYS_FILE"

_TIME = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_SHOWN_DIGITS = 12  # of a hash
_NO_LIMIT = "none"
_MAKERS = ("add", "rotate")  # the commands that make a key
_LIMITS = ("sentences_in_flight", "sentences_per_second", "note")  # what set changes, and makers may set


def keys(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what the arguments say, and return the exit code. StartupError: they are wrong, or the file is."""
    arguments = _parser().parse_args(argv)
    file = arguments.file or environ.get(_FILE_VARIABLE)
    if not file:
        raise SettingsError(f"--file is required (or {_FILE_VARIABLE})")
    if sys.stdout is None:
        raise KeysError("standard output is closed, so nobody would see the answer")
    if arguments.command == "set" and all(getattr(arguments, field) is None for field in _LIMITS):
        flags = ", ".join(f"--{field.replace('_', '-')}" for field in _LIMITS)
        raise SettingsError(f"set needs at least one of {flags}")
    path = Path(file)
    for line in _listed(path) if arguments.command == "list" else [_change(path, arguments)]:
        _show(line, is_key=arguments.command in _MAKERS)
    return 0


def _show(line: str, *, is_key: bool) -> None:
    try:
        print(line, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python tries again when it ends
        unseen = "; the new key is in the file, and nobody has seen it" if is_key else ""
        raise KeysError(f"the answer cannot be written: {error.strerror}{unseen}") from None


def _change(path: Path, arguments: argparse.Namespace) -> str:
    """Change what the file says of a holder, and return what to tell of it."""
    command, name = arguments.command, arguments.name
    told = ""

    def change(before: Holders) -> Holders:
        nonlocal told
        check_name(name)
        if name not in before:
            if command == "rotate":
                raise KeysError(f"{name} has no key yet; {_PROG} add makes one")
            if command != "add":
                raise KeysError(f"there is no holder {name}")
            if len(before) >= MOST_HOLDERS:
                raise KeysError(f"the file has {MOST_HOLDERS:,} holders, and no more are accepted")
        holder, told = _COMMANDS[command](before.get(name, KeyHolder()), arguments)
        others = {each: before[each] for each in before if each != name}
        return {**others, name: holder} if holder else others

    change_keys(path, change)
    return told


def _add(holder: KeyHolder, arguments: argparse.Namespace) -> tuple[KeyHolder, str]:
    if arguments.expires and arguments.expires <= datetime.now(UTC):
        raise SettingsError("--expires: this time is over")
    if len(holder.keys) >= MOST_KEYS_OF_A_HOLDER:
        raise KeysError(f"{arguments.name} has {MOST_KEYS_OF_A_HOLDER} keys, and no more are accepted; remove one")
    token = make_token()
    key = Key(sha256=digest_of(token).hex(), expires=arguments.expires)
    return _changed(holder, arguments, keys=(*holder.keys, key)), token


def _rotate(holder: KeyHolder, arguments: argparse.Namespace) -> tuple[KeyHolder, str]:
    end, now = arguments.keep, datetime.now(UTC)
    valid = [key for key in holder.keys if not key.has_expired(now)]
    older = [key if key.has_expired(end) else key.model_copy(update={"expires": end}) for key in valid]
    return _add(holder.model_copy(update={"keys": older}), arguments)


def _set(holder: KeyHolder, arguments: argparse.Namespace) -> tuple[KeyHolder, str]:
    return _changed(holder, arguments), f"changed {arguments.name}"


def _remove(holder: KeyHolder, arguments: argparse.Namespace) -> tuple[KeyHolder | None, str]:
    name, start = arguments.name, arguments.hash
    if start is None:
        return None, f"removed {name}, with {len(holder.keys)} keys"
    if not start:  # such as a variable of the shell that is not set
        raise KeysError("the beginning of a key's hash is empty")
    kept = tuple(key for key in holder.keys if not key.sha256.startswith(start))
    if (found := len(holder.keys) - len(kept)) != 1:
        raise KeysError(f"{name} has {found} keys whose hash begins with {without_secrets(start[:64])}")
    return holder.model_copy(update={"keys": kept}), f"removed a key of {name}"


_COMMANDS: Mapping[str, Callable[[KeyHolder, argparse.Namespace], tuple[KeyHolder | None, str]]] = {
    "add": _add,
    "rotate": _rotate,
    "set": _set,
    "remove": _remove,
}


def _changed(holder: KeyHolder, arguments: argparse.Namespace, **more: Any) -> KeyHolder:
    """Return a holder with what the arguments set."""
    values = vars(holder) | more
    for field in _LIMITS:
        if (value := getattr(arguments, field)) is not None:
            values[field] = None if value == _NO_LIMIT and field != "note" else value
    try:
        return KeyHolder.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        place = str(problem["loc"][0]).replace("_", "-")
        raise SettingsError(f"--{place}: {problem['msg'][:1].lower()}{problem['msg'][1:]}") from None


def _listed(path: Path) -> Iterator[str]:
    now = datetime.now(UTC)
    for name, holder in sorted(load_keys(path).items()):
        shown = [name]
        if holder.sentences_in_flight is not None:
            shown.append(f"{holder.sentences_in_flight} sentences in flight")
        if holder.sentences_per_second is not None:
            shown.append(f"{holder.sentences_per_second:g} sentences a second")
        if holder.note:
            shown.append(f"({holder.note})")
        yield "  ".join(shown)
        for key in holder.keys:
            end = "does not expire"
            if key.expires:
                end = f"{'expired' if key.has_expired(now) else 'expires'} {key.expires:%Y-%m-%d %H:%M} UTC"
            yield f"    {key.sha256[:_SHOWN_DIGITS]}  {end}"


def _time(text: str) -> datetime:
    """Read a time: from now on, such as 30d, 12h or 5m; or a date and time with a time zone."""
    if match := _TIME.fullmatch(text):
        return datetime.now(UTC).replace(microsecond=0) + timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is not None:
            return when.astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: in UTC, the year is 0 or 10000
        pass
    raise argparse.ArgumentTypeError(f"{text[:60]!r} is no time: write 30d, 12h, 5m or 2030-12-31T00:00:00Z")


def _limit(kind: type[int] | type[float], text: str) -> Any:
    try:
        return text if text == _NO_LIMIT else kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is no number; {_NO_LIMIT} takes the limit away") from None


class _Parser(SettingsParser):
    def error(self, message: str) -> NoReturn:
        super().error(without_secrets(message))


def _parser() -> Parser:
    parser = _Parser(_PROG, description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("add", "give NAME a key, and print the key; nothing shows it again"),
        ("rotate", "give NAME a new key, print it, and let the keys before expire"),
        ("set", "change the limits of NAME"),
        ("remove", "remove NAME, or one of its keys"),
        ("list", "show holders, limits, and the beginnings of hashes"),
    ):
        _add_arguments(name, commands.add_parser(name, help=text, description=text))
    return parser


def _add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", metavar="FILE", help=f"the file of keys; or {_FILE_VARIABLE}")
    if command == "list":
        return
    parser.add_argument("name", metavar="NAME", help="who has the key; it is the key's name in metrics and in the log")
    if command == "remove":
        parser.add_argument("hash", metavar="HASH", nargs="?", help="how the hash of the key begins; else all keys")
        return
    if command in _MAKERS:
        parser.add_argument("--expires", metavar="WHEN", type=_time, help="30d, 12h, 5m or 2030-12-31T00:00:00Z")
    if command == "rotate":
        parser.add_argument(
            "--keep", metavar="WHEN", type=_time, required=True, help="when the keys before expire, written as above"
        )
    whole, real = partial(_limit, int), partial(_limit, float)
    parser.add_argument("--sentences-in-flight", metavar="N", type=whole, help="most sentences of open calls")
    parser.add_argument("--sentences-per-second", metavar="X", type=real, help="most sentences, over time")
    parser.add_argument("--note", metavar="TEXT", help="a remark, for people")
