"""The call that the current task answers: who makes it, what it may ask for, and what is noted about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from translane_server.access.allowances import Account

# What the current call adds to its line in the log, and to its span. Set only if the call is logged or recorded.
_facts: ContextVar[dict[str, Any]] = ContextVar("facts")

# Who makes the current call.
_caller: ContextVar[str] = ContextVar("caller", default="")

# What the current call takes of the allowance of its key; None if callers need no keys, or nothing is to be counted.
_account: ContextVar[Account | None] = ContextVar("account", default=None)


def gather_facts() -> None:
    """Let `note` keep what it gets for the current call."""
    _facts.set({})


def facts() -> Mapping[str, Any]:
    """Return what `note` has kept for the current call."""
    return _facts.get({})


def identify(caller: str, account: Account | None) -> None:
    """Say who makes the current call, and what pays for its sentences; None if nothing does."""
    _caller.set(caller)
    _account.set(account)


def caller() -> str:
    """Return who makes the current call; see `callers`."""
    return _caller.get()


def pay(sentences: int) -> None:
    """Take sentences of the current call from the allowance of its key.

    Raises:
        TooManySentencesError: too many sentences of the key are in flight.
        SentenceRateError: too many sentences of the key came lately.
        InvalidRequestError: the key can never have so many sentences in flight.
    """
    if account := _account.get():
        account.pay(sentences)


@contextmanager
def unpaid() -> Iterator[None]:
    """Let `pay` take nothing, because the sentences of a step were paid for in the step before."""
    token = _account.set(None)
    try:
        yield
    finally:
        _account.reset(token)


def note(**facts: Any) -> None:
    """Add `facts` to the log line and the span of the current call."""
    noted = _facts.get(None)
    if noted is not None:
        noted.update(facts)
