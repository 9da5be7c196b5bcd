"""Errors as statuses of the richer error model."""

import pytest
from google.rpc import error_details_pb2

from translane_server.api import status
from translane_server.core import errors

HEADER_LIMIT = 8 * 1024


def unpack(answer, kind):
    message = kind()
    assert sum(detail.Unpack(message) for detail in answer.details) == 1
    return message


def every_error(base=errors.RequestError):
    for error in base.__subclasses__():
        if error is not errors.RetryableError:
            yield error
        yield from every_error(error)


def make(error):
    if issubclass(error, errors.InvalidRequestError):
        return error(errors.FieldViolation("texts[3]", "is odd"))
    if issubclass(error, errors.RetryableError):
        return error("busy", retry_after=1.5)
    return error("something")


@pytest.mark.parametrize("error", list(every_error()))
def test_every_error_has_a_code_and_an_error_info(error):
    answer = status.status_of(make(error))
    assert answer.code == status.CODES[error].value[0]
    info = unpack(answer, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == (error.reason, "translane")
    if issubclass(error, errors.RetryableError):
        assert unpack(answer, error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() == 1500


def test_reasons_are_distinct():
    reasons = [error.reason for error in every_error()]
    assert len(set(reasons)) == len(reasons)


def test_violations_are_named():
    answer = status.status_of(make(errors.InvalidRequestError))
    (violation,) = unpack(answer, error_details_pb2.BadRequest).field_violations
    assert (violation.field, violation.description) == ("texts[3]", "is odd")
    assert answer.message == "texts[3]: is odd"


def test_a_status_fits_into_the_headers():
    violations = [errors.FieldViolation(f"texts[{n}]", "说" * 500) for n in range(300)]
    answer = status.status_of(errors.InvalidRequestError(*violations))
    wire = len(answer.SerializeToString()) * 4 / 3 + len(answer.message.encode()) * 3
    assert wire < HEADER_LIMIT
