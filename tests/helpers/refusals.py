"""What an error says."""

from collections.abc import Callable
from typing import Any

import pytest


def refusal(kind: type[Exception], call: Callable[..., object], *arguments: Any, **more: Any) -> str:
    """The message of the error that `call` must raise: one line, of printable characters."""
    with pytest.raises(kind) as caught:
        call(*arguments, **more)
    message = str(caught.value)
    assert message.isprintable(), message
    return message
