"""The calls that one method of the blocking client has under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import grpc

from translane.errors import Cancelled
from translane_client._token import Metadata


class RunningCalls:
    """The calls that one method has under way. Leaving the context cancels them all, after an error or Ctrl-C too.

    Args:
        sleep: Waits the given number of seconds. None: a wait that ends at once when the context is left.
    """

    def __init__(self, sleep: Callable[[float], object] | None) -> None:
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._running: set[Any] = set()
        self.sleep = sleep or self._stopped.wait

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Cancels the calls under way, and refuses later ones. May be called again, and by any thread."""
        with self._lock:
            self._stopped.set()
            running = list(self._running)
        for call in running:
            call.cancel()

    def result(self, method: Any, request: object, timeout: float | None, metadata: Metadata | None) -> Any:
        """The response.

        Raises:
            grpc.RpcError: the call failed.
            Cancelled: another thread has stopped the calls, or the client was closed.
        """
        with self._begun(method.future, request, timeout, metadata) as call:
            return call.result()

    def messages(self, method: Any, request: object, timeout: float | None, metadata: Metadata | None) -> Iterator[Any]:
        """The messages of a stream; raises as `result` does."""
        with self._begun(method, request, timeout, metadata) as call:
            yield from call

    @contextmanager
    def _begun(self, begin: Any, request: object, timeout: float | None, metadata: Metadata | None) -> Iterator[Any]:
        """Begins a call. Leaving the context cancels the call if it is not over."""
        with self._lock:
            if self._stopped.is_set():
                raise Cancelled("the call was cancelled")
            try:
                call = begin(request, timeout=timeout, metadata=metadata)
            except ValueError as error:  # gRPC's way to say that the channel is closed
                raise Cancelled("the client was closed") from error
            self._running.add(call)
        try:
            yield call
        except (grpc.FutureCancelledError, grpc.RpcError) as error:
            if self._stopped.is_set() or isinstance(error, grpc.FutureCancelledError):
                raise Cancelled("the call was cancelled") from error
            raise
        finally:
            call.cancel()
            with self._lock:
                self._running.discard(call)
