"""What a failed call says: its code, and the details of the richer error model."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

_DETAILS = "grpc-status-details-bin"
_RETRIED = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)


@dataclass(frozen=True)
class Failure:
    """A call that was not answered."""

    code: grpc.StatusCode
    reason: str = ""  # of the ErrorInfo; empty if there is none
    retry_after: float | None = None  # of the RetryInfo [seconds]; None if there is none
    fields: tuple[str, ...] = ()  # the fields that the BadRequest names
    message: str = ""

    @property
    def can_be_retried(self) -> bool:
        return self.retry_after is not None

    @property
    def is_refusal(self) -> bool:
        """Whether the server refused the call in the promised form, so that the caller may try again."""
        return self.code in _RETRIED and bool(self.reason) and self.can_be_retried

    @property
    def name(self) -> str:
        """The code and the reason, for figures."""
        return f"{self.code.name}({self.reason or 'no ErrorInfo'})"


async def failed(call: Awaitable[object]) -> Failure:
    """The failure of a call that must fail."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        rpc_status.from_call(error)  # type: ignore[arg-type]  # it raises if the details have another code or message
        return failure_of(error)
    raise AssertionError("the call was answered")


async def ended(call: Awaitable[object]) -> str:
    """How a call ends: OK, or the name of its failure; "final" before it if the caller may not try again."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        failure = failure_of(error)
        return failure.name if failure.is_refusal else f"final {failure.name}"
    return "OK"


def failure_of(error: grpc.RpcError) -> Failure:
    """Return what `error`, raised by grpc or grpc.aio, says."""
    call: Any = error  # gRPC's errors are calls as well, though their types do not say so
    packed = [value for key, value in call.trailing_metadata() or () if key == _DETAILS]
    return parsed(call.code() or grpc.StatusCode.UNKNOWN, packed[0] if packed else b"", call.details() or "")


def parsed(code: grpc.StatusCode, packed: bytes, message: str = "") -> Failure:
    """Return the failure of a status with `packed` as its `grpc-status-details-bin`."""
    info, retry, bad = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo(), error_details_pb2.BadRequest()
    retry_after = None
    for detail in status_pb2.Status.FromString(packed).details:
        detail.Unpack(info)
        detail.Unpack(bad)
        if detail.Unpack(retry):
            retry_after = retry.retry_delay.ToNanoseconds() / 1e9
    fields = tuple(violation.field for violation in bad.field_violations)
    return Failure(code, info.reason, retry_after, fields, message)
