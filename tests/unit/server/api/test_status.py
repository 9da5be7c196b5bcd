"""Errors as statuses of the richer error model; and who calls: an address, a network, or what a proxy says."""

import pytest
from google.rpc import error_details_pb2

from translane_server.api import status
from translane_server.api.call import caller_of, caller_of_peer, name_in_certificate
from translane_server.core import errors
from translane_server.http.server import _name_in as name_in

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


def test_a_status_fits_into_the_headers():
    violations = [errors.FieldViolation(f"texts[{n}]", "说" * 500) for n in range(300)]
    answer = status.status_of(errors.InvalidRequestError(*violations))
    wire = len(answer.SerializeToString()) * 4 / 3 + len(answer.message.encode()) * 3
    assert wire < HEADER_LIMIT


@pytest.mark.parametrize(
    ("peer", "caller"),
    [
        ("ipv4:192.0.2.7:50000", "192.0.2.7"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:443", "2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2::9]:443", "2001:db8:1:2::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:443", "fe80::/64"),
        ("ipv6:%5B::1%5D:443", "::/64"),
        ("ipv6:%5B::ffff:192.0.2.7%5D:443", "192.0.2.7"),
        ("unix:/run/translane.sock", "unix"),
        ("unix:", "unix"),
        ("ipv4:nonsense", "ipv4"),
        ("", ""),
    ],
)
def test_a_caller_is_an_address_without_its_port(peer, caller):
    assert caller_of_peer(peer) == caller


PEER = "ipv4:192.0.2.7:50000"


@pytest.mark.parametrize(
    ("metadata", "certificate", "header", "caller"),
    [
        ([("x-caller", "shop")], "", "x-caller", "shop"),
        ([("x-caller", b"shop")], "", "x-caller", "shop"),
        ([("other", "one"), ("x-caller", "shop"), ("x-caller", "second")], "", "x-caller", "shop"),
        ([("x-caller", "c" * 100)], "", "x-caller", "c" * 100),
        ([("x-caller", "shop")], "two", "x-caller", "shop"),
        ([("x-caller", "")], "two", "x-caller", "two"),
        ([("x-caller", "")], "", "x-caller", "192.0.2.7"),
        ([], "", "x-caller", "192.0.2.7"),
        ([("x-caller", "shop")], "", "", "192.0.2.7"),  # by default, no header counts
    ],
)
def test_a_header_names_the_caller_or_else_a_certificate_or_else_the_address(metadata, certificate, header, caller):
    assert caller_of(metadata, certificate, PEER, header) == caller


def test_long_names_stay_different():
    start = "c" * 200
    names = [caller_of([("x-caller", start + end)], "", PEER, "x-caller") for end in ("/alice", "/bob", "/alice")]
    assert names[0] == names[2] != names[1]
    assert {len(name) for name in names} == {100}


def test_a_certificate_names_its_first_alternative_name_or_else_its_common_name():
    both = {"x509_common_name": [b"one"], "x509_subject_alternative_name": [b"two", b"three"]}
    assert name_in_certificate(both) == "two"
    assert name_in_certificate({"x509_common_name": [b"one"]}) == "one"
    assert name_in_certificate({}) == ""


@pytest.mark.parametrize(("more", "name"), [(["name@example.org"], "name@example.org"), ([], "one")])
def test_an_alternative_name_that_no_port_can_read_names_nobody(more, name):
    """As with a UPN in certificates of companies. What stands for it is the same for all."""
    by_grpc = [each.encode() for each in ("other types of SAN", *more)]
    assert name_in_certificate({"x509_common_name": [b"one"], "x509_subject_alternative_name": by_grpc}) == name
    by_python = [("othername", "<unsupported>"), *(("email", each) for each in more)]
    assert name_in({"subject": [[("commonName", "one")]], "subjectAltName": by_python}) == name
